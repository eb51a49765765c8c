"""The process around a session: signals and Python's garbage collector."""
