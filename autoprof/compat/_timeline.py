"""The timeline figure: the named intervals of all ranks over one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._reports.figures import (
    COLORS,
    TWO_COLUMNS_IN,
    bare,
    blank_figure,
    legend_of,
    set_title,
    settle,
    styled,
)
from .._reports.text import elide_all, safe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..logs.formats.global_timer import TimerRecord


def lanes_of(intervals: Sequence[TimerRecord]) -> list[int]:
    """Return the lane of each interval of one rank, sorted by start: the first lane that is free."""
    free_at: list[float] = []
    lanes = []
    for one in intervals:
        lane = next((at for at, free in enumerate(free_at) if free <= one.start_s), len(free_at))
        free_at[lane : lane + 1] = [one.end_s]
        lanes.append(min(lane, 7))  # deeper intervals share the last lane, or the figure would not end
    return lanes


def timeline_figure(intervals: Sequence[TimerRecord]) -> Figure:
    """Return the figure; the longest names have a colour of their own."""
    from matplotlib.ticker import EngFormatter

    max_bars = 20_000
    rank_gap = 0.5
    zero = min(one.start_s for one in intervals)
    shown = sorted(intervals, key=lambda one: one.start_s - one.end_s)[:max_bars]
    names = _longest(shown)
    notes = ["Bars: host time, from start to stop."]
    if len(intervals) > len(shown):
        notes.append(f"The {len(intervals) - len(shown)} shortest are not drawn.")
    if len(names) > len(COLORS):
        notes.append(f"{len(names) - len(COLORS)} shorter names are grey.")
    colors = dict(zip(names, COLORS, strict=False))
    labels = elide_all([safe(name) for name in colors], 28)
    bars: dict[str, list[tuple[float, float, float]]] = {name: [] for name in [*colors, ""]}
    ticks, top = [], 0.0
    for rank in sorted({one.rank for one in shown}):
        own = sorted((one for one in shown if one.rank == rank), key=lambda one: (one.start_s, -one.end_s))
        lanes = lanes_of(own)
        for one, lane in zip(own, lanes, strict=True):
            place = (one.start_s - zero, top + lane, one.end_s - one.start_s)
            bars[one.name if one.name in colors else ""].append(place)
        ticks.append((top + (max(lanes) + 1) / 2, f"rank {rank}"))
        top += max(lanes) + 1 + rank_gap
    with styled():
        figure = blank_figure(TWO_COLUMNS_IN, 1.5 + 0.2 * top)
        axes = figure.subplots()
        for (name, drawn), label in zip(bars.items(), [*labels, "other names"], strict=True):
            if drawn:
                left, y, width = zip(*drawn, strict=True)
                color = colors.get(name, "#bdbdbd")
                axes.barh(y, width, 0.86, left, align="edge", color=color, label=label, edgecolor="white", lw=0.5)
        axes.set_ylim(top - rank_gap + 0.15, -0.15)
        axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
        axes.xaxis.set_major_formatter(EngFormatter("s"))
        axes.set_xlabel("time since the first start")
        set_title(axes, "Timeline of all ranks")
        axes.margins(x=0.01)
        bare(axes, grid="x")
        axes.tick_params(axis="y", length=0)
        settle(figure, [legend_of(axes)], " ".join(notes))
    return figure


def _longest(intervals: Sequence[TimerRecord]) -> list[str]:
    sums: dict[str, float] = {}
    for one in intervals:
        sums[one.name] = sums.get(one.name, 0.0) + one.end_s - one.start_s
    return sorted(sums, key=lambda name: (-sums[name], name))
