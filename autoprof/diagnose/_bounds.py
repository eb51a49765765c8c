"""The bounds that rules share, with their reasons; a bound of one rule alone stands in its module."""

from __future__ import annotations

from typing import Final

MIN_SHARE: Final = 0.1
"""Share of the step, or of the run, from which a time is worth a finding: it is an hour of ten. Any other part that is
less than a tenth is not worth a word either: of a machine, of a kind of time, or of an excess."""
MAX_BESIDE: Final = 0.15
"""Share of the step, or of the run, that may pass beside forward and backward: the loop's own statements, the optimizer
and validation take little of it, and an expert calls a run healthy when at least 85 % of it is explained."""
GOOD_PART: Final = 0.25
"""A good part: a quarter. From here on a time that only an estimate calls lost is worth a finding, and memory that is
never used. A quarter of all steps shows the usual one."""
LARGE_SHARE: Final = 0.3
"""Share of the step from which a time is worth a finding that may belong to the work, as launches and a loss outside
of the model. Where nearly a third of every step is lost, this is the first thing to look at: it is critical."""
MOST: Final = 0.5
"""More than half is most of it: of a time, of the steps, of the operations, or of a growth."""
CAUSE_SHARE: Final = 0.75
"""Fraction of the excess of the long steps that must be in the phases."""
NEARLY_ALL: Final = 0.8
"""A time is attributed to one row, module or line of code from this fraction on, and steps to one rhythm: a stall of
the machine falls out of it."""
FULL: Final = 0.95
"""Use of a device or of the processors from which on they are full: readings at intervals show no gaps."""
MARGIN: Final = 0.1
"""A value within a tenth of its bound is near it, neither above nor below: two runs of one program differ by some
percent. One of them may then be "near", but never one "above" and the other "below"."""
REPEATED: Final = 1.5
"""Times from which on a thing is done again, or has grown: of 8,000 rows of 80 architectures none had more than one
backward for each forward."""
LONG_STEP: Final = 2.0
"""A step of at least this many usual ones is a long one."""
SEVERAL: Final = 3.0
"""A row is slow from this many times the time that its work, or its siblings, explain: blocks of one structure differ
by some percent, the rates of a kind of operator by a factor of two. A share of several times its bound is critical."""
PATTERN: Final = 3
"""Events from which on they are a pattern: two may be one stall of the machine across two steps, the first kernels that
are tried, or the two compilations by which torch detects a dynamic shape."""
MIN_SAMPLES: Final = 5
"""Recorded steps, or samples of a stack, before any of them is judged: the intervals of fewer are too wide."""
MANY: Final = 8
"""Calls, or groups of parameters, from which on they are those of a loop: programs have two groups, or one for each
layer, and fewer calls in a step are as short as the loop's own statements."""
MANY_STEPS: Final = 32
"""Recorded steps whose quarters show a trend. Before as many, autoprof does not decide by its own cost yet."""
MANY_OPERATORS: Final = 100
"""Operators of a module in a step, from which on they are the work of a loop: a layer has a few, attention thirty."""
