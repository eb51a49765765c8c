"""Comparison of two runs, or two groups of runs: slower and faster modules and phases, with confidence intervals.

``compare_runs`` reads the runs (``series``), pairs their rows, computes an interval for each ratio of medians
(``contrast``) and gives a verdict (``candidates``). The result is frozen data, a ``Comparison``;
``render_comparison`` shows it.
"""

from .build import compare_runs
from .data import Change, Comparison, RunNote
from .text import render_comparison

__all__ = ["Change", "Comparison", "RunNote", "compare_runs", "render_comparison"]
