"""The picture of a timing log: how the longest names went over the steps, and what every name comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .._reports.figures import COLORS, FAINT, INK, bare, blank_figure, styled
from .._reports.fonts import Script, script_for
from .._reports.text import elide
from .timing_records import Timing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES: Final = 6
"""Names drawn over the steps; more lines than that are told apart by nobody."""
BARS: Final = 20
POINTS: Final = 1000
"""Points of a line; when there are more steps, a point is the mean of several."""
NAME_CELLS: Final = 34
FEWEST: Final = 6


class Course:
    """Means of every name over stretches of the run, in memory that does not grow with the steps."""

    def __init__(self) -> None:
        self.stride = 1
        self.first = -1
        self.names: dict[str, dict[int, list[float]]] = {}
        self.total: dict[int, list[float]] = {}
        self.spread: dict[str, list[float]] = {}
        self._step = -1

    def add(self, one: Timing) -> None:
        """Take one name's time in one step."""
        if self.first < 0:
            self.first = one.step
        while (one.step - self.first) // self.stride >= POINTS:
            self.stride *= 2
            self.total = _halved(self.total)
            self.names = {name: _halved(points) for name, points in self.names.items()}
        at = (one.step - self.first) // self.stride
        _count(self.names.setdefault(one.name, {}), at, one.ms)
        if one.step != self._step:
            self._step = one.step
            _count(self.total, at, one.total_ms)
        held = self.spread.setdefault(one.name, [0, 0.0, one.ms, one.ms])
        held[:] = held[0] + 1, held[1] + one.ms, min(held[2], one.ms), max(held[3], one.ms)

    def line(self, points: dict[int, list[float]]) -> tuple[np.ndarray, np.ndarray]:
        """Return steps and milliseconds."""
        order = sorted(points)
        steps = np.array([self.first + at * self.stride for at in order])
        return steps, np.array([points[at][1] / points[at][0] for at in order])

    def longest(self) -> list[str]:
        """Return the names, the one that took most of the run first."""
        return sorted(self.spread, key=lambda name: (-self.spread[name][1], name))


def _count(points: dict[int, list[float]], at: int, value: float) -> None:
    held = points.setdefault(at, [0, 0.0])
    held[0] += 1
    held[1] += value


def _halved(points: dict[int, list[float]]) -> dict[int, list[float]]:
    made: dict[int, list[float]] = {}
    for at, (count, total) in points.items():
        held = made.setdefault(at // 2, [0, 0.0])
        held[0] += count
        held[1] += total
    return made


def timing_figure(course: Course) -> Figure:
    """Return the picture: lines over the steps on the left, means with their least and most on the right."""
    names = course.longest()
    script = script_for("".join(names[:BARS]))
    with styled(script):
        height = max(4.4, 1.9 + 0.28 * min(len(names), BARS))
        figure = blank_figure(13, height)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_lines(left, course, names[:LINES], script)
        _draw_bars(right, course, names[:BARS], script)
        notes = ["Bars: mean of the steps in which the name occurred; whiskers: the least and the most."]
        if course.stride > 1:
            notes.append(f"A point of a line is the mean of {course.stride} steps.")
        if len(names) > BARS:
            notes.append(f"{len(names) - BARS} shorter names are not shown.")
        notes += [f"\n{script.note}"] if script.note else []
        figure.supxlabel(" ".join(notes), fontsize=8, color=FAINT, x=0.01, ha="left")
        figure.draw_without_rendering()
    return figure


def _draw_lines(axes: Axes, course: Course, names: list[str], script: Script) -> None:
    steps, total = course.line(course.total)
    marker = "o" if len(steps) <= 40 else None
    axes.plot(steps, total, color=INK, linewidth=1.8, marker=marker, markersize=3.5, label="Total")
    for name, color in zip(names, COLORS, strict=False):
        at, values = course.line(course.names[name])
        label = elide(script.show(name), NAME_CELLS)
        axes.plot(at, values, color=color, linewidth=1.4, marker=marker, markersize=3, label=label)
    axes.set_title("Time over steps", loc="left", fontsize=12, color=INK)
    axes.set_xlabel("step", color=INK)
    axes.set_ylabel("ms", color=INK)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    axes.locator_params(axis="x", integer=True)
    bare(axes)
    axes.grid(axis="y", color="#d9d9d9", linewidth=0.7)
    legend = axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, frameon=False, fontsize=8.5, labelcolor=INK
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _draw_bars(axes: Axes, course: Course, names: list[str], script: Script) -> None:
    rows = range(len(names))
    means = [course.spread[name][1] / course.spread[name][0] for name in names]
    least, most = ([course.spread[name][at] for name in names] for at in (2, 3))
    below = [max(mean - low, 0.0) for mean, low in zip(means, least, strict=True)]
    beyond = [max(high - mean, 0.0) for mean, high in zip(means, most, strict=True)]
    colors = [COLORS[row] if row < LINES else "#9a9a9a" for row in rows]
    axes.barh(rows, means, height=0.62, color=colors, xerr=(below, beyond), error_kw={"ecolor": INK, "linewidth": 0.9})
    longest = max(most, default=1.0) or 1.0
    for row, (mean, high) in enumerate(zip(means, most, strict=True)):
        axes.text(high + 0.02 * longest, row, f"{mean:.2f} ms", va="center", fontsize=8, color=INK, in_layout=False)
    axes.set_xlim(0, 1.3 * longest)
    axes.set_ylim(max(len(names), FEWEST) - 0.4, -0.6)
    axes.set_yticks(list(rows), [elide(script.show(name), NAME_CELLS) for name in names], fontsize=8.5)
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)
    axes.set_title("Mean per step", loc="left", fontsize=12, color=INK)
    axes.set_xlabel("ms", color=INK)
    bare(axes)
    axes.tick_params(axis="y", length=0)
