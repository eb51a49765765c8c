"""The figure of a timing log: the longest names over the steps, and the mean of every name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .._reports.figures import (
    COLORS,
    INK,
    SMALL,
    TWO_COLUMNS_IN,
    Legend,
    bare,
    blank_figure,
    legend_of,
    set_title,
    settle,
    styled,
)  # fmt: skip
from .._reports.fonts import Script, script_for
from .._reports.text import elide_all
from ._timings import RunningStats, Timing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES: Final = 6
"""Names drawn over the steps; more lines cannot be distinguished."""
MAX_BARS: Final = 20
MIN_BARS: Final = 6
"""The space of the bar plot is for at least so many bars."""
MAX_POINTS: Final = 1000
"""Points of a line; in a longer run a point is the mean of several steps."""
NAME_CELLS: Final = 30

_Points = dict[int, list[float]]
"""Count and sum of the values by index of the point."""


class TimingLines:
    """The time of every name over the steps, as means over equal stretches. The memory is bounded."""

    def __init__(self) -> None:
        self.stride = 1
        """Steps per point."""
        self.first_step = -1
        self.names: dict[str, _Points] = {}
        self.total: _Points = {}
        self.extents: dict[str, RunningStats] = {}
        self._last_step = -1

    def add(self, one: Timing) -> None:
        """Add the time of one name in one step."""
        if self.first_step < 0:
            self.first_step = one.step
        while (one.step - self.first_step) // self.stride >= MAX_POINTS:
            self.stride *= 2
            self.total = _halved(self.total)
            self.names = {name: _halved(points) for name, points in self.names.items()}
        index = (one.step - self.first_step) // self.stride
        _add_value(self.names.setdefault(one.name, {}), index, one.ms)
        if one.step != self._last_step:
            self._last_step = one.step
            _add_value(self.total, index, one.total_ms)
        self.extents.setdefault(one.name, RunningStats()).add(one.ms)

    def line(self, points: _Points) -> tuple[np.ndarray, np.ndarray]:
        """Return steps and milliseconds of a name or of the total."""
        order = sorted(points)
        steps = np.array([self.first_step + index * self.stride for index in order])
        return steps, np.array([points[index][1] / points[index][0] for index in order])

    def longest(self) -> list[str]:
        """Return the names in descending order of their total time."""
        return sorted(self.extents, key=lambda name: (-self.extents[name].total, name))


def _add_value(points: _Points, index: int, value: float) -> None:
    point = points.setdefault(index, [0, 0.0])
    point[0] += 1
    point[1] += value


def _halved(points: _Points) -> _Points:
    """Return half as many points, each the sum of two."""
    merged: _Points = {}
    for index, (count, total) in points.items():
        point = merged.setdefault(index // 2, [0, 0.0])
        point[0] += count
        point[1] += total
    return merged


def timing_figure(lines: TimingLines) -> Figure:
    """Return the figure: lines over the steps on the left, means with least and most on the right."""
    names = lines.longest()
    script = script_for(names[:MAX_BARS])
    with styled(script):
        figure = blank_figure(TWO_COLUMNS_IN, max(2.7, 1.3 + 0.155 * min(len(names), MAX_BARS)))
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        legend = _draw_lines(left, lines, names[:MAX_LINES], script)
        _draw_bars(right, lines, names[:MAX_BARS], script)
        notes = ["Bars: mean of the steps in which the name occurred; whiskers: minimum and maximum."]
        if lines.stride > 1:
            notes.append(f"A point of a line is the mean of {lines.stride} steps.")
        if len(names) > MAX_BARS:
            notes.append(f"{len(names) - MAX_BARS} shorter names are not shown.")
        notes += [script.note] if script.note else []
        settle(figure, [legend], " ".join(notes))
    return figure


def _draw_lines(axes: Axes, lines: TimingLines, names: list[str], script: Script) -> Legend:
    steps, total = lines.line(lines.total)
    marker = "o" if len(steps) <= 40 else None
    axes.plot(steps, total, color=INK, linewidth=1.4, marker=marker, markersize=2.6, label="Total")
    labels = elide_all([script.show(name) for name in names], NAME_CELLS)
    for name, label, color in zip(names, labels, COLORS, strict=False):
        at, values = lines.line(lines.names[name])
        axes.plot(at, values, color=color, linewidth=1.1, marker=marker, markersize=2.4, label=label)
    set_title(axes, "Time over steps")
    axes.set_xlabel("step")
    axes.set_ylabel("ms")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    axes.locator_params(axis="x", integer=True)
    bare(axes)
    return legend_of(axes)


def _draw_bars(axes: Axes, lines: TimingLines, names: list[str], script: Script) -> None:
    rows = range(len(names))
    extents = [lines.extents[name] for name in names]
    below = [max(one.mean - one.least, 0.0) for one in extents]
    above = [max(one.most - one.mean, 0.0) for one in extents]
    colors = [COLORS[row] if row < MAX_LINES else "#9a9a9a" for row in rows]
    axes.barh(
        rows, [one.mean for one in extents], height=0.62, color=colors, xerr=(below, above),
        error_kw={"ecolor": INK, "linewidth": 0.7},
    )  # fmt: skip
    longest = max((one.most for one in extents), default=1.0) or 1.0
    for row, one in enumerate(extents):
        text = f"{one.mean:.2f} ms"
        axes.text(one.most + 0.02 * longest, row, text, va="center", fontsize=SMALL, color=INK, in_layout=False)
    axes.set_xlim(0, 1.38 * longest)
    axes.set_ylim(max(len(names), MIN_BARS) - 0.4, -0.6)
    axes.set_yticks(list(rows), elide_all([script.show(name) for name in names], NAME_CELLS), fontsize=SMALL)
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)
    set_title(axes, "Mean per step")
    axes.set_xlabel("ms")
    bare(axes, grid=None)
    axes.tick_params(axis="y", length=0)
