"""The process around a session: signals, replaced functions of other packages, Python's garbage collector."""
