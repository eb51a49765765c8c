"""Compare the default report with the clocks of programs people write: ``python -m tests.acceptance``.

Each program runs in a process of its own, with one line of autoprof and no configuration. It measures with its own
clock the figures that the report will give, and compares them.
"""
