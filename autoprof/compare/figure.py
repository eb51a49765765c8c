"""The forest plot of a comparison: the ratio of each row with its interval, grouped by name."""

from __future__ import annotations

import os
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .._reports.figures import (
    FAINT,
    INK,
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
from .text import by_phase, headline, interval, percent, value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_ROWS: Final = 24
"""The most rows besides the whole step and its phases."""
_MAX_NAME_CELLS: Final = 38
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "slower": {"color": "#d55e00", "marker": ">"},
    "faster": {"color": "#0072b2", "marker": "<"},
    "same": {"color": "#009e73", "marker": "s"},
    "inconclusive": {"color": "#8a8a8a", "marker": "o", "markerfacecolor": "white"},
}
_Groups = list[tuple[str, list[Change]]]


def plot_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Draw the comparison into a file in the format of its ending. Raises ``OutputError`` if it cannot be written."""
    check_format(Path(path))
    return save_figure(comparison_figure(comparison), path)


def comparison_figure(comparison: Comparison) -> Figure:
    """Return the figure: a row for the step, each phase, and the rows with the largest differences."""
    with_ratio = [one for one in comparison.rows if one.ratio is not None]
    shown = with_ratio[:_MAX_ROWS]
    groups: _Groups = [("", [one for one in comparison.whole if one.unit == "ns" and one.ratio])]
    groups.append(("whole step by phase", [one for one in comparison.phases if one.ratio is not None]))
    for name in dict.fromkeys(row.name for row in shown):
        groups.append((name, sorted((one for one in shown if one.name == name), key=by_phase)))
    groups = [(name, rows) for name, rows in groups if rows]
    if not groups:
        raise OutputError("compare: no row has an interval, so nothing to draw; both sides need 20 recorded steps")
    sides = [Path(side[0].path).name for side in (comparison.a, comparison.b)]
    script = script_for([*(name for name, _ in groups), *sides])
    with styled(script):
        figure = blank_figure(TWO_COLUMNS_IN, 1.3 + 0.155 * sum(len(rows) + bool(name) for name, rows in groups))
        legend = _draw(figure.subplots(), groups, comparison, script)
        title = "\n".join(wrap("", headline(comparison), 100, room=0))
        figure.suptitle(title, fontsize=TITLE, fontweight="bold", x=0.01, ha="left")
        settle(figure, [legend], _footnote(comparison, len(with_ratio) - len(shown), script))
    return figure


def _draw(axes: Axes, groups: _Groups, comparison: Comparison, script: Script) -> Legend:
    from matplotlib.lines import Line2D

    rows = [one for _, group in groups for one in group]
    low, high = _limits(rows, comparison.margin)
    axes.axvspan(1 / (1 + comparison.margin), 1 + comparison.margin, color="#e8e8e8", linewidth=0, zorder=0)
    axes.axvline(1, color=FAINT, linewidth=0.9, zorder=1)
    if comparison.limit is not None and 1 + comparison.limit < high:
        axes.axvline(1 + comparison.limit, color=_STYLES["slower"]["color"], linewidth=0.9, linestyle="--", zorder=1)
    labels: list[str] = []
    heads = []
    names = elide_all([script.show(name) for name, _ in groups], _MAX_NAME_CELLS)
    for name, (_, group) in zip(names, groups, strict=True):
        if name:
            heads.append(len(labels))
            labels.append(name)
        for one in group:
            _draw_row(axes, one, len(labels), (low, high))
            labels.append(str(one.phase) if one.phase else one.name)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(len(labels) - 0.3, -0.8)
    axes.set_yticks(range(len(labels)), labels, fontsize=SMALL)
    for at, tick in enumerate(axes.get_yticklabels()):
        tick.set_parse_math(False)  # a name may hold dollar signs
        tick.set_fontweight("bold" if at in heads else "normal")
    marks = [float(f"{exp(log(low) + at / 6 * log(high / low)):.2g}") for at in range(1, 6)]
    axes.set_xticks(sorted({1.0, *(mark for mark in marks if abs(log(mark)) > log(high / low) / 12)}))
    axes.xaxis.set_major_formatter(lambda mark, _: f"{mark:g}")
    axes.set_xticks([], minor=True)
    axes.set_xlabel("time of B / time of A (median per step, 95 % interval)")
    bare(axes, grid=None)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    present = [word for word in _STYLES if any(one.verdict == word for one in rows)]
    return Legend(axes, [Line2D([], [], linewidth=1.2, markersize=3.8, **_STYLES[word]) for word in present], present)


def _draw_row(axes: Axes, one: Change, at: int, limits: tuple[float, float]) -> None:
    low, high = limits
    assert one.ratio is not None
    style = _STYLES.get(one.verdict, {"color": INK, "marker": "o"})
    ends = (one.low or low / 2, one.high or high * 2)
    axes.plot(ends, (at, at), color=style["color"], linewidth=1.2, solid_capstyle="butt", zorder=2)
    axes.plot(one.ratio, at, markersize=3.8, zorder=3, linestyle="", **style)
    text = f"{value(one, one.a)} → {value(one, one.b)}   {percent(one.ratio)} % {interval(one)}"
    axes.text(1.02, at, text, transform=axes.get_yaxis_transform(), va="center", fontsize=SMALL, color=INK)


def _limits(rows: list[Change], margin: float) -> tuple[float, float]:
    """Choose an axis that shows the ratios and most of the intervals; a wide interval extends beyond it."""
    ratios = [log(one.ratio) for one in rows if one.ratio]
    widest = 3 * max(map(abs, ratios)) + log(1 + 3 * margin)
    ends = [log(end) for one in rows for end in (one.low, one.high) if end]
    inside = [*ratios, *(min(max(end, -widest), widest) for end in ends)]
    reach = log(1 + 2 * margin)
    return exp(1.08 * min(*inside, -reach)), exp(1.08 * max(*inside, reach))


def _footnote(comparison: Comparison, hidden: int, script: Script) -> str:
    sides = []
    for side in (comparison.a, comparison.b):
        more = "" if len(side) == 1 else f" and {len(side) - 1} more"
        sides.append(elide(script.show(Path(side[0].path).name), _MAX_NAME_CELLS) + more)
    clock = "device" if comparison.clock == "device" else "host"
    words = f"A: {sides[0]}; B: {sides[1]}; {clock} time."
    words += f" Grey: ±{100 * comparison.margin:g} %, changes within the margin."
    if comparison.limit is not None:
        words += f" Dashed: the limit, +{100 * comparison.limit:g} %."
    if hidden:
        words += f" {hidden} rows with smaller differences are not shown."
    return f"{words} {script.note}".rstrip()
