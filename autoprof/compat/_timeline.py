"""The timeline figure: the named intervals of all ranks over one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

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
)
from .._reports.fonts import Script, script_for
from .._reports.text import cells, elide_all
from ..errors import OutputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..logs.formats.global_timer import TimerRecord

MAX_COLORS: Final = 8
"""Names with a colour of their own: the longest. The others are grey."""
OTHER_COLOR: Final = "#bdbdbd"
MAX_BARS: Final = 20_000
"""Bars drawn; of more the shortest are omitted, which are too narrow to be seen."""
NAME_CELLS: Final = 28
MAX_LANES: Final = 8
"""Lanes of one rank; deeper intervals are drawn in the last one."""
_RANK_GAP: Final = 0.5
"""The space between two ranks, in lanes."""


def lanes_of(intervals: Sequence[TimerRecord]) -> list[int]:
    """Return the lane of each interval of one rank, sorted by start: the first lane that is free."""
    free_at: list[float] = []
    lanes = []
    for one in intervals:
        lane = next((at for at, free in enumerate(free_at) if free <= one.start_s), len(free_at))
        if lane == len(free_at):
            free_at.append(one.end_s)
        free_at[lane] = one.end_s
        lanes.append(min(lane, MAX_LANES - 1))
    return lanes


def timeline_figure(intervals: Sequence[TimerRecord], window: tuple[float, float] | None = None) -> Figure:
    """Return the figure. ``window`` is a range in seconds since the first interval of all ranks."""
    zero = min(one.start_s for one in intervals)
    shown = [one for one in intervals if window is None or _overlaps(one, zero, window)]
    if not shown:
        raise OutputError(f"plot_timeline: no interval in the window {window}; allowed: seconds since the first start")
    omitted = max(len(shown) - MAX_BARS, 0)
    if omitted:
        shown = sorted(sorted(shown, key=lambda one: one.start_s - one.end_s)[:MAX_BARS], key=lambda one: one.start_s)
    ranks = sorted({one.rank for one in shown})
    in_order = sorted(shown, key=lambda one: (one.start_s, -one.end_s))
    by_rank = {rank: [one for one in in_order if one.rank == rank] for rank in ranks}
    lanes = {rank: lanes_of(own) for rank, own in by_rank.items()}
    heights = {rank: max(lanes[rank]) + 1 for rank in ranks}
    names = _longest(shown)
    script = script_for(names)
    notes = ["Bars: host time, from start to stop."]
    if omitted:
        notes.append(f"The {omitted} shortest are not drawn.")
    if len(names) > MAX_COLORS:
        notes.append(f"{len(names) - MAX_COLORS} shorter names are grey.")
    notes += [script.note] if script.note else []
    with styled(script):
        figure = blank_figure(TWO_COLUMNS_IN, 1.5 + 0.2 * sum(heights.values()) + 0.1 * len(ranks))
        axes = figure.subplots()
        span = (max(one.end_s for one in shown) - zero) if window is None else window[1] - window[0]
        legend = _draw(axes, by_rank, lanes, heights, names, zero, script, span)
        if window is not None:
            axes.set_xlim(*(_scale(span)[0] * at for at in window))
        settle(figure, [legend], " ".join(notes))
    return figure


def _overlaps(one: TimerRecord, zero: float, window: tuple[float, float]) -> bool:
    return one.end_s - zero >= window[0] and one.start_s - zero <= window[1]


def _longest(intervals: Sequence[TimerRecord]) -> list[str]:
    sums: dict[str, float] = {}
    for one in intervals:
        sums[one.name] = sums.get(one.name, 0.0) + one.end_s - one.start_s
    return sorted(sums, key=lambda name: (-sums[name], name))


def _scale(span_s: float) -> tuple[float, str]:
    return (1.0, "s") if span_s >= 2 else (1e3, "ms") if span_s >= 2e-3 else (1e6, "µs")


def _draw(
    axes: Axes,
    by_rank: dict[int, list[TimerRecord]],
    lanes: dict[int, list[int]],
    heights: dict[int, int],
    names: list[str],
    zero: float,
    script: Script,
    span_s: float,
) -> Legend:
    scale, unit = _scale(span_s)
    colors = dict(zip(names, COLORS[:MAX_COLORS], strict=False))
    labels = dict(zip(names, elide_all([script.show(name) for name in names[:MAX_COLORS]], NAME_CELLS), strict=False))
    top, ticks = 0.0, []
    bars: dict[str, list[tuple[float, float, float]]] = {}
    for rank, own in by_rank.items():
        ticks.append((top + heights[rank] / 2, f"rank {rank}"))
        for one, lane in zip(own, lanes[rank], strict=True):
            where = ((one.start_s - zero) * scale, top + lane, (one.end_s - one.start_s) * scale)
            bars.setdefault(one.name if one.name in colors else "", []).append(where)
        top += heights[rank] + _RANK_GAP
    for name, drawn in bars.items():
        left, y, width = zip(*drawn, strict=True)
        label = labels.get(name, "other names")
        color = colors.get(name, OTHER_COLOR)
        axes.barh(y, width, left=left, height=0.86, align="edge", color=color, label=label, edgecolor="white", lw=0.5)
        for x, at, length in drawn:
            if name and length > 0.0085 * span_s * scale * (cells(label) + 1):
                white = "white" if color not in ("#e69f00", "#56b4e9") else INK
                text = axes.text(
                    x + length / 2, at + 0.43, label, ha="center", va="center", fontsize=SMALL, color=white
                )
                text.set_parse_math(False)
                text.set_clip_on(True)
                text.set_in_layout(False)
    axes.set_ylim(top - _RANK_GAP + 0.15, -0.15)
    axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
    axes.set_xlabel(f"{unit} since the first start")
    set_title(axes, "Timeline of all ranks")
    axes.margins(x=0.01)
    bare(axes, grid="x")
    axes.tick_params(axis="y", length=0)
    return legend_of(axes)
