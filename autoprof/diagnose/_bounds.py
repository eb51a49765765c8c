"""The bounds that several rules share, with their reasons; a bound of one rule stands in its module."""

from __future__ import annotations

from typing import Final

MIN_SHARE: Final = 0.1
"""Share of the step, or of the run, from which a time is worth a finding: it is an hour of ten."""
MAX_UNEXPLAINED: Final = 0.15
"""Share of the step that code outside of the model's work may take: the loop's own statements take little, and an
expert calls a run healthy when at least 85 % of it is explained."""
MARGIN: Final = 0.1
"""A value within a tenth of its bound is near it, neither above nor below: two runs of one program differ by some
percent. One of them may then be "near", but never one "above" and the other "below"."""
CRITICAL: Final = 3.0
"""A share of at least this many times its bound, and of at least ``CRITICAL_SHARE``, is critical, not a warning."""
CRITICAL_SHARE: Final = 0.3
"""Where nearly a third of every step is lost, this is the first thing to look at."""
NEARLY_ALL: Final = 0.8
"""A time is attributed to one row, module or line of code from this fraction on."""
SEVERAL: Final = 3.0
"""A row is slow from this many times the time that its work, or its siblings, explain: blocks of one structure differ
by some percent, the rates of a kind of operator by a factor of two."""
MANY_OPERATORS: Final = 100
"""Operators of a module in a step, from which on they are the work of a loop: a layer has a few, attention thirty."""
CAUSE_SHARE: Final = 0.75
"""Fraction of the excess of the long steps that must be in the phases."""
MIN_REPEATED: Final = 1.5
"""Backwards of a module for each of its forwards, from which on some are repeated: of 8,000 rows of 80 architectures
none had more than one."""
