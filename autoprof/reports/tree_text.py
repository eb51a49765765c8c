"""The tree of names as a table: share and time of a step, and the parts forward, recompute and backward."""

from __future__ import annotations

from typing import Final

from ..base.frame import MODULE_PHASES
from ..base.summary import Summary
from ..base.units import NS_PER_MS, NS_PER_S, count, format_count, format_ns, format_percent, format_short
from .hot_tree import HotTree, TreeRow
from .text import render_rows, safe

SEVERAL: Final = 1.5
"""Calls of a step from which their number is shown."""
_UNITS: Final = ((100 * NS_PER_S, NS_PER_S, "s"), (NS_PER_MS, NS_PER_MS, "ms"), (0, 1_000, "µs"))
_LEAST: Final = {"calls": 7, "share": 9, "forward": 9, "recompute": 11, "backward": 10, "steps": 7, " ×12": 4}


def _columns(tree: HotTree, summary: Summary, *, calls: bool, split: bool) -> tuple[list[str], list[list[str]]]:
    """Return the heads of the columns of numbers, and the numbers of each row."""
    unit_ns, unit = column_unit(summary)
    parts = [at for at in range(len(MODULE_PHASES)) if split and any(row.parts[at] for row in tree.rows)]
    partial = any(row.steps != summary.steps for row in tree.rows if row.steps)
    heads = [*(["calls"] if calls else []), "share", f"{unit}/step"]
    heads += [*(str(MODULE_PHASES[at]) for at in parts), *(["steps"] if partial else [])]
    numbers = []
    for row in tree.rows:
        counted = [format_count(row.calls) if row.calls else ""] if calls else []
        share = format_percent(row.share, row.limit_ns / max(summary.step_mean_ns, 1))
        total = format_short(row.total_ns, row.limit_ns, unit_ns, none="0")
        times = [format_short(row.parts[at], row.limit_ns, unit_ns) if row.is_split else "" for at in parts]
        steps = [str(row.steps) if row.steps not in (0, summary.steps) else ""] if partial else []
        numbers.append([*counted, share, total, *times, *steps])
    return heads, numbers


def column_unit(summary: Summary) -> tuple[int, str]:
    """Return the nanoseconds and the name of the unit in which this run's steps have few digits."""
    units = ((unit_ns, word) for least_ns, unit_ns, word in _UNITS if summary.step_mean_ns >= least_ns)
    return next(units, _UNITS[-1][1:])  # of a damaged summary the mean may be negative


def name_cells(summary: Summary, width: int, *, calls: bool = False) -> int:
    """Return the cells for an indented name beside the columns of numbers, less some for its number of calls."""
    phases = [str(phase) for phase in MODULE_PHASES if summary.phases.get(phase)]
    return width - sum(_LEAST.get(head, 9) for head in ["share", "", *phases, "calls" if calls else " ×12"])


def render_tree(
    tree: HotTree,
    summary: Summary,
    width: int,
    *,
    calls: bool = False,
    split: bool = True,
    bar_cells: int = 0,
) -> list[str]:
    """Return the head, a line for each row, and the lines below; ``bar_cells`` adds a bar of the share to each row.

    ``calls`` gives the calls of a step a column, else they follow the name. Without ``split`` there are no columns for
    forward, recompute and backward. Where some names occur only in some of the recorded steps, a last column has the
    number of these steps.
    """
    heads, numbers = _columns(tree, summary, calls=calls, split=split)
    least = [_LEAST.get(head, 9) for head in heads]
    if bar_cells:
        full = [-(-bar_cells * row.total_ns // max(summary.step_mean_ns, 1)) for row in tree.rows]  # rounded up
        bars = [("█" * min(int(cells), bar_cells)).ljust(bar_cells, "░") for cells in full]
        heads, least = ["", *heads], [bar_cells + 2, *least]
        numbers = [[bar, *cells] for bar, cells in zip(bars, numbers, strict=True)]
    several = not calls and any(row.calls >= SEVERAL for row in tree.rows)
    rows = [[_row_name(row, calls=not calls), *cells] for row, cells in zip(tree.rows, numbers, strict=True)]
    head = [f"name{' ×calls' if several else ''}", *heads]
    lines = render_rows([head, *rows], width, least=least)
    if tree.hidden:
        most = format_percent(tree.hidden_share)
        lines.append(f"… and {count(tree.hidden, 'more name')}, each at most {most} of the step")
    return [*lines, *_legend(tree, summary)]


def _row_name(row: TreeRow, *, calls: bool = True) -> str:
    """Return the name of a row: indented, with its calls in a step, its phase where no column shows it, and marks."""
    words = row.name, row.name.partition("/")[0].lower()
    phase = "" if row.phase is None or row.is_split or str(row.phase) in words else f" ({row.phase})"
    number = f" ×{format_count(row.calls)}" if calls and row.calls >= SEVERAL else ""
    marks = f"{' +' if row.is_unopened else ''}{' *' if row.is_host_bound else ''}"
    return safe(f"{'  ' * min(row.depth, 6)}{row.name}{number}{phase}{marks}")


def _legend(tree: HotTree, summary: Summary) -> list[str]:
    lines = []
    if any(row.is_unopened for row in tree.rows):
        lines.append("+ its parts are not recorded: that would cost more than the budget")
    if any(row.is_host_bound for row in tree.rows):
        lines.append("* host-bound: for most of this time the device waited for the host's launches")
    if any(0 < ns < row.limit_ns for row in tree.rows for ns in (row.total_ns, *row.parts)):
        lines.append(f"< the clock cannot resolve spans below {format_ns(summary.clock_limit_ns)}")
    return lines
