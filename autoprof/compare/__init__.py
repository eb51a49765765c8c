"""Two runs, or two groups of runs, held against each other: what became slower, by module and phase.

``compare_runs`` reads them (``series``), pairs their rows (``pairs``), puts an interval on each ratio of medians
(``intervals``) and gives a verdict (``judge``). What comes out is frozen data, ``Comparison``; ``render_comparison``,
``render_markdown`` and ``comparison_figure`` show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .build import compare_runs, find_runs
from .data import Change, Comparison, Difference, Lone, RunNote
from .markdown import render_markdown
from .text import render_comparison

if TYPE_CHECKING:
    from .figure import comparison_figure, plot_comparison

__all__ = [
    "Change",
    "Comparison",
    "Difference",
    "Lone",
    "RunNote",
    "compare_runs",
    "comparison_figure",
    "find_runs",
    "plot_comparison",
    "render_comparison",
    "render_markdown",
]


def __getattr__(name: str) -> object:
    """Load the figures, and matplotlib with them, when they are first asked for."""
    if name in ("comparison_figure", "plot_comparison"):
        from . import figure

        return getattr(figure, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
