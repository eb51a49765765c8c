"""The forest plot of a comparison: the ratio of each row with its interval, grouped by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from .._reports.figures import (
    FAINT,
    INK,
    ONE_COLUMN_IN,
    SMALL,
    TITLE,
    TWO_COLUMNS_IN,
    Legend,
    bare,
    blank_figure,
    check_format,
    save_figure,
    settle,
    styled,
)  # fmt: skip
from .._reports.fonts import Script, script_for
from .._reports.text import elide, elide_all, wrap
from ..errors import OutputError
from .data import Change, Comparison
from .wording import by_phase, headline, interval, percent, value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS: Final = 24
"""The most rows besides the whole step and its phases."""
NAME_CELLS: Final = {1: 26, 2: 38}
"""Cells of a name, by the columns of a paper that the figure spans."""
TITLE_CELLS: Final = {1: 48, 2: 100}
LINE_IN: Final = 0.155
_COLORS: Final = {"slower": "#d55e00", "faster": "#0072b2", "same": "#009e73", "inconclusive": "#8a8a8a"}
_MARKERS: Final = {"slower": ">", "faster": "<", "same": "s", "inconclusive": "o"}
_TICKS: Final = (
    0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 0.98, 0.99,
    1, 1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50,
)  # fmt: skip


def plot_comparison(comparison: Comparison, path: str | os.PathLike[str], *, columns: Literal[1, 2] = 2) -> Path:
    """Draw the comparison into a file in the format of its ending, one or two ``columns`` of a paper wide.

    Raises ``OutputError`` if it cannot be written.
    """
    check_format(Path(path))
    return save_figure(comparison_figure(comparison, columns=columns), path)


def comparison_figure(comparison: Comparison, *, columns: Literal[1, 2] = 2) -> Figure:
    """Return the figure: a row for the step, each phase, and the rows with the largest differences.

    One column has each change in percent; two have the values of both sides and the interval as well.
    """
    with_ratio = [one for one in comparison.rows if one.ratio is not None]
    shown = with_ratio[:ROWS]
    groups: list[tuple[str, list[Change]]] = [("", [one for one in comparison.whole if one.unit == "ns" and one.ratio])]
    groups.append(("whole step by phase", [one for one in comparison.phases if one.ratio is not None]))
    for row in shown:
        if row.name not in [name for name, _ in groups]:
            groups.append((row.name, sorted((one for one in shown if one.name == row.name), key=by_phase)))
    groups = [(name, rows) for name, rows in groups if rows]
    if not groups:
        raise OutputError("compare: no row has an interval, so nothing to draw; both sides need 20 recorded steps")
    sides = [Path(side[0].path).name for side in (comparison.a, comparison.b)]
    script = script_for([*(name for name, _ in groups), *sides])
    lines = sum(len(rows) + bool(name) for name, rows in groups)
    with styled(script):
        figure = blank_figure(ONE_COLUMN_IN if columns == 1 else TWO_COLUMNS_IN, 1.3 + LINE_IN * lines)
        axes = figure.subplots()
        legend = _draw(axes, groups, comparison, script, columns)
        title = wrap("", headline(comparison), TITLE_CELLS[columns], room=0)
        figure.suptitle("\n".join(title), fontsize=TITLE, fontweight="bold", x=0.01, ha="left")
        settle(figure, [legend], _footnote(comparison, len(with_ratio) - len(shown), script, columns))
    return figure


def _draw(
    axes: Axes, groups: Sequence[tuple[str, Sequence[Change]]], comparison: Comparison, script: Script, columns: int
) -> Legend:
    rows = [one for _, group in groups for one in group]
    low, high = _limits(rows, comparison.margin)
    axes.axvspan(1 / (1 + comparison.margin), 1 + comparison.margin, color="#e8e8e8", linewidth=0, zorder=0)
    axes.axvline(1, color=FAINT, linewidth=0.9, zorder=1)
    if comparison.limit is not None and 1 + comparison.limit < high:
        axes.axvline(1 + comparison.limit, color=_COLORS["slower"], linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    at, ticks, labels, heads = 0, [], [], []
    names = elide_all([script.show(name) for name, _ in groups], NAME_CELLS[columns])
    for name, (_, group) in zip(names, groups, strict=True):
        if name:
            heads.append(at)
            ticks.append(at)
            labels.append(name)
            at += 1
        for one in group:
            _draw_row(axes, one, at, (low, high), columns)
            ticks.append(at)
            labels.append(str(one.phase) if one.phase else one.name)
            at += 1
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(at - 0.3, -0.8)
    axes.set_yticks(ticks, labels, fontsize=SMALL)
    for tick, place in zip(axes.get_yticklabels(), ticks, strict=True):
        tick.set_parse_math(False)  # a name may hold dollar signs
        tick.set_fontweight("bold" if place in heads else "normal")
    marks = _ticks(low, high, 11 if columns == 2 else 5)
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("time of B / time of A" + (" (median per step, 95 % interval)" if columns == 2 else ""))
    bare(axes, grid=None)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return _legend(axes, rows)


def _draw_row(axes: Axes, one: Change, at: int, limits: tuple[float, float], columns: int) -> None:
    low, high = limits
    assert one.ratio is not None
    color = _COLORS.get(one.verdict, INK)
    ends = (one.low or low / 2, one.high or high * 2)
    axes.plot(ends, (at, at), color=color, linewidth=1.2, solid_capstyle="butt", zorder=2)
    face = "white" if one.verdict == "inconclusive" else color
    marker = _MARKERS.get(one.verdict, "o")
    axes.plot(one.ratio, at, marker=marker, markersize=3.8, color=color, markerfacecolor=face, zorder=3)
    text = f"{percent(one.ratio)} %"
    if columns == 2:
        text = f"{value(one, one.a)} → {value(one, one.b)}   {text} {interval(one)}"
    axes.text(1.02, at, text, transform=axes.get_yaxis_transform(), va="center", fontsize=SMALL, color=INK)


def _limits(rows: Sequence[Change], margin: float) -> tuple[float, float]:
    """Choose an axis that shows the ratios and most of the intervals; an infinite interval extends beyond it."""
    ratios = [one.ratio for one in rows if one.ratio]
    ends = [end for one in rows for end in (one.low, one.high) if end]
    widest = 3 * max(abs(log(ratio)) for ratio in ratios) + log(1 + 3 * margin)
    reach = max(*(min(abs(log(end)), widest) for end in [*ends, 1.0]), log(1 + 2 * margin)) * 1.08
    low = min([*(log(one) for one in ratios), *(log(end) for end in ends), -log(1 + 2 * margin)])
    high = max([*(log(one) for one in ratios), *(log(end) for end in ends), log(1 + 2 * margin)])
    return exp(max(low * 1.08, -reach)), exp(min(high * 1.08, reach))


def _ticks(low: float, high: float, most: int) -> list[float]:
    inside = [tick for tick in _TICKS if low <= tick <= high]
    span = log(high / low)
    kept: list[float] = [1.0]
    for tick in sorted(inside, key=lambda one: abs(log(one))):
        if all(abs(log(tick / other)) > span / most for other in kept):
            kept.append(tick)
    return sorted(kept)


def _legend(axes: Axes, rows: Sequence[Change]) -> Legend:
    from matplotlib.lines import Line2D

    present = [word for word in _COLORS if any(one.verdict == word for one in rows)]
    handles = []
    for word in present:
        face = "white" if word == "inconclusive" else _COLORS[word]
        handle = Line2D([], [], color=_COLORS[word], marker=_MARKERS[word], markerfacecolor=face, linewidth=1.2)
        handle.set_markersize(3.8)
        handles.append(handle)
    return Legend(axes, handles, present)


def _footnote(comparison: Comparison, hidden: int, script: Script, columns: int) -> str:
    sides = [script.show(Path(side[0].path).name) for side in (comparison.a, comparison.b)]
    more = ["" if len(side) == 1 else f" and {len(side) - 1} more" for side in (comparison.a, comparison.b)]
    clock = "device" if comparison.clock == "device" else "host"
    shown = [elide(side, NAME_CELLS[columns]) for side in sides]
    words = f"A: {shown[0]}{more[0]}; B: {shown[1]}{more[1]}; {clock} time."
    words += f" Grey: ±{100 * comparison.margin:g} %, changes within the margin."
    if comparison.limit is not None:
        words += f" Dashed: the limit, +{100 * comparison.limit:g} %."
    if hidden:
        words += f" {hidden} rows with smaller differences are not shown."
    return f"{words} {script.note}".rstrip()
