"""The memory figure: the finding as its title, memory over the steps, and memory by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._core.units import format_bytes
from ..frame import NOT_MEASURED, Nanoseconds
from ..summary import MemoryRow, Summary
from .card import memory_capacity
from .figures import (
    INK,
    SMALL,
    TITLE,
    TWO_COLUMNS_IN,
    Legend,
    bare,
    blank_figure,
    legend_of,
    set_title,
    settle,
    styled,
)
from .memory_text import label
from .text import elide_all, safe, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_NAMES: Final = 12
"""The most names with a bar."""
_STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "allocated_bytes": {"color": "#0072b2", "linewidth": 1.2, "zorder": 3},
    "reserved_bytes": {"color": "#8c8c8c", "linestyle": (0, (1, 1)), "linewidth": 1.4, "zorder": 2},
    "peak_bytes": {"color": "#b34700", "linestyle": (0, (5, 2)), "linewidth": 1.4, "zorder": 4},
    "rss_bytes": {"color": "#0072b2", "linewidth": 1.2, "zorder": 3},
    "rss_peak_bytes": {"color": "#b34700", "linestyle": (0, (5, 2)), "linewidth": 1.4, "zorder": 4},
}
"""Lines that differ in dashes and lightness as well, for grey print."""
_PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "parameters": ("#004c7a", ""),
    "gradients": ("#f0b84b", ""),
    "optimizer state": ("#009e73", "////"),
    "growth": ("#e3b7d1", "...."),
}
"""Colours and hatches: dark, light, medium, pale."""
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


@dataclass(frozen=True, eq=False, slots=True)
class MemoryHistory:
    """Readings over a run: for every ``stride`` steps their largest. ``NOT_MEASURED`` is a gap in a line."""

    steps: Nanoseconds
    series: Mapping[str, Nanoseconds]
    stride: int = 1


def memory_parts(row: MemoryRow) -> tuple[int, ...]:
    """Return the lengths of the parts of a name's bar, in the order of ``_PARTS``."""
    held = (row.parameter_bytes or 0) + (row.buffer_bytes or 0)
    return held, row.gradient_bytes or 0, row.state_bytes or 0, max(row.activation_bytes or 0, 0)


def memory_figure(history: MemoryHistory, summary: Summary) -> Figure:
    """Return the figure: readings over steps, and memory by name, as far as measured."""
    named = [row for row in summary.memory_table if row.name is not None and any(memory_parts(row))]
    named.sort(key=lambda row: -sum(memory_parts(row)))
    shown = named[:MAX_NAMES]
    capacity = memory_capacity(summary) if "allocated_bytes" in summary.memory else None
    with styled():
        # Inches above and below the axes: titles, legends, notes.
        figure = blank_figure(TWO_COLUMNS_IN, max(2.9, 1.35 + 0.155 * len(shown)))
        is_read = any(len(column) and int(column.max()) >= 0 for column in history.series.values())
        widths = [*([3.2] if is_read else []), *([2.5] if shown else [])] or [1]
        axes = list(figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
        title = "\n".join(wrap("", memory_finding(history, summary), 92, room=0))
        figure.suptitle(title, fontsize=TITLE + 1, fontweight="bold", x=0.01, ha="left")
        legends = []
        if is_read:
            _draw_readings(axes[0], history, capacity)
            legends.append(legend_of(axes[0]))
        if shown:
            legends.append(_draw_names(axes[-1], shown))
        settle(figure, legends, _footnote(history, named))
    return figure


def memory_finding(history: MemoryHistory, summary: Summary) -> str:
    """Return the title: the peak, the device's memory, and the part that holds most of it."""
    peak, word = _peak(history)
    if not peak:
        return "Memory: no reading above zero" if history.series else "Memory by name"
    capacity = memory_capacity(summary) if word == "Peak" else None
    text = f"{word} {format_bytes(peak)}" + (f" of {format_bytes(capacity)}" if capacity else "")
    whole = next((row for row in summary.memory_table if row.name is None), None)
    if whole is None or whole.parameter_bytes is None:
        return text
    parts = dict(zip(_PARTS, memory_parts(whole)[:3], strict=False))
    held = sum(parts.values())
    if word != "Peak":
        return f"{text}, of it {format_bytes(held)} for the model and its optimizer"
    parts["activations and other tensors"] = max(peak - held, 0)
    most, size = max(parts.items(), key=lambda part: part[1])
    share = f"{format_bytes(size)}, {100 * size / peak:.0f} %"
    return f"{text}, held mostly by {most} ({share})" if 2 * size >= peak else f"{text}; largest part: {most} ({share})"


def _peak(history: MemoryHistory) -> tuple[int, str]:
    """Return the largest reading, of the device if there is one, and its word."""
    for keys, word in ((("peak_bytes", "allocated_bytes"), "Peak"), (("rss_peak_bytes", "rss_bytes"), "Process peak")):
        columns = [history.series[key] for key in keys if key in history.series]
        most = max((int(column.max()) for column in columns if len(column)), default=0)
        if most > 0:
            return most, word
    return 0, ""


def _draw_readings(axes: Axes, history: MemoryHistory, capacity: int | None) -> None:
    series = {key: column for key, column in history.series.items() if key.endswith("_bytes")}
    most = max((int(column.max()) for column in series.values() if len(column)), default=0)
    # The device's memory is drawn where it is near the peak; else only the title names it.
    capacity = capacity if capacity and capacity <= 2.5 * most else None
    scale, unit = next(entry for entry in _UNITS if max(most, 1) >= entry[0])
    marker = "o" if len(history.steps) <= 40 else None
    for key, column in series.items():
        if not (column != NOT_MEASURED).any():
            continue
        points = np.where(column == NOT_MEASURED, np.nan, column / scale)
        style = {"color": "#555555", "linewidth": 1.2, **_STYLES.get(key, {})}
        axes.plot(history.steps, points, label=label(key), marker=marker, markersize=2.5, **style)
    if capacity:
        axes.axhline(capacity / scale, color=INK, linewidth=0.8, label=f"device, {format_bytes(capacity)}")
    set_title(axes, "Memory over steps")
    axes.set_xlabel("step")
    axes.set_ylabel(unit)
    axes.set_ylim(0, 1.06 * max(most, capacity or 0) / scale or 1)
    axes.locator_params(axis="x", integer=True)
    if len(history.steps) == 1:
        axes.set_xlim(history.steps[0] - 1, history.steps[0] + 1)
    bare(axes)


def _draw_names(axes: Axes, names: Sequence[MemoryRow]) -> Legend:
    places = np.arange(len(names))
    reached = np.zeros(len(names))
    for at, (word, (color, hatch)) in enumerate(_PARTS.items()):
        part = np.array([memory_parts(row)[at] for row in names], dtype=float)
        if part.any():
            for bar in axes.barh(places, part, left=reached, height=0.66, color=color, label=word):
                bar.set(hatch=hatch, edgecolor="white", linewidth=0.5)
            reached += part
    most = float(reached.max()) or 1.0
    for at, row in enumerate(names):
        text = format_bytes(sum(memory_parts(row)))
        axes.text(reached[at] + 0.02 * most, at, text, va="center", fontsize=SMALL, color=INK, in_layout=False)
    axes.set_xlim(0, 1.42 * most)  # room for the text after the longest bar
    # Leave room for six rows, so that a single bar is not a block.
    axes.set_ylim(max(len(names), 6) - 0.4, -0.6)
    labels = elide_all([safe(row.name or "") for row in names], 28)
    axes.set_yticks(list(places), labels, fontsize=SMALL)
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)  # a name may hold dollar signs
    set_title(axes, "Memory by name")
    bare(axes, grid=None)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])  # the numbers are at the bars
    return legend_of(axes)


def _footnote(history: MemoryHistory, named: Sequence[MemoryRow]) -> str:
    notes = ["Readings at the end of each step."]
    if history.stride > 1:
        notes.append(f"A point is the largest of {history.stride} steps.")
    if not named:
        return " ".join([*notes, "No name was measured; set memory: true in a rule to measure its modules."])
    notes.append("A name includes the modules in it.")
    if any(memory_parts(row)[3] for row in named):
        notes.append("growth: the most over a step's calls.")
    if len(named) > MAX_NAMES:
        notes.append(f"{len(named) - MAX_NAMES} names with less are not shown.")
    return " ".join(notes)
