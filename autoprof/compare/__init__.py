"""Comparison of two runs, or two groups of runs: slower and faster modules and phases, with confidence intervals.

``compare_runs`` reads the runs (``series``), pairs their rows, computes an interval for each ratio of medians
(``contrast``) and gives a verdict (``candidates``). The result is frozen data, a ``Comparison``;
``render_comparison`` and ``comparison_figure`` show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .build import compare_runs
from .data import Change, Comparison, RunNote
from .text import render_comparison

if TYPE_CHECKING:
    from .figure import comparison_figure, plot_comparison

__all__ = [
    "Change",
    "Comparison",
    "RunNote",
    "compare_runs",
    "comparison_figure",
    "plot_comparison",
    "render_comparison",
]


def __getattr__(name: str) -> object:
    """Import the figures, and matplotlib with them, on first use."""
    if name in ("comparison_figure", "plot_comparison"):
        from . import figure

        return getattr(figure, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
