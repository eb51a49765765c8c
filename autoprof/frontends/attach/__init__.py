"""``autoprof attach``: open a session in a process that trains already, and close it again.

The command passes a request to the process: through PEP 768 where both are CPython 3.14 or newer, or through the
listener that ``AUTOPROF_ATTACH=1`` starts. In the process the request changes one method of torch's optimizers and
nothing else. The session opens and closes on the training thread, at the end of an optimizer step.
"""
