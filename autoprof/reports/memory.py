"""The memory figure: memory over the steps, and the finding as its title."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..base.frame import NOT_MEASURED, Nanoseconds
from ..base.summary import Summary
from ..base.units import format_bytes
from .card import memory_capacity
from .figures import INK, TITLE, TWO_COLUMNS_IN, bare, blank_figure, set_title, settle, styled
from .memory_text import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "allocated_bytes": {"color": "#0072b2", "linewidth": 1.2, "zorder": 3},
    "reserved_bytes": {"color": "#8c8c8c", "linestyle": (0, (1, 1)), "linewidth": 1.4, "zorder": 2},
    "peak_bytes": {"color": "#b34700", "linestyle": (0, (5, 2)), "linewidth": 1.4, "zorder": 4},
    "rss_bytes": {"color": "#0072b2", "linewidth": 1.2, "zorder": 3},
    "rss_peak_bytes": {"color": "#b34700", "linestyle": (0, (5, 2)), "linewidth": 1.4, "zorder": 4},
}
"""Lines that differ in dashes and lightness as well, for grey print."""
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


@dataclass(frozen=True, eq=False, slots=True)
class MemoryHistory:
    """Readings over a run: for every ``stride`` steps their largest. ``NOT_MEASURED`` is a gap in a line."""

    steps: Nanoseconds
    series: Mapping[str, Nanoseconds]
    stride: int = 1


def memory_figure(history: MemoryHistory, summary: Summary) -> Figure:
    """Return the figure of the readings over the steps."""
    capacity = memory_capacity(summary) if "allocated_bytes" in summary.memory else None
    with styled():
        figure = blank_figure(TWO_COLUMNS_IN, 2.9)
        axes = figure.subplots()
        title = memory_finding(history, summary)
        figure.suptitle(title, fontsize=TITLE + 1, fontweight="bold", x=0.01, ha="left")
        _draw_readings(axes, history, capacity)
        note = "Readings at the end of each step."
        if history.stride > 1:
            note += f" A point is the largest of {history.stride} steps."
        settle(figure, note)
    return figure


def memory_finding(history: MemoryHistory, summary: Summary) -> str:
    """Return the title: the peak, of the device if it has readings, and the device's memory."""
    for keys, word in ((("peak_bytes", "allocated_bytes"), "Peak"), (("rss_peak_bytes", "rss_bytes"), "Process peak")):
        peak = max((int(history.series[key].max(initial=0)) for key in keys if key in history.series), default=0)
        capacity = memory_capacity(summary) if word == "Peak" else None
        if peak > 0:
            return f"{word} {format_bytes(peak)}" + (f" of {format_bytes(capacity)}" if capacity else "")
    return "Memory: no reading above zero"


def _draw_readings(axes: Axes, history: MemoryHistory, capacity: int | None) -> None:
    series = {key: column for key, column in history.series.items() if key.endswith("_bytes")}
    most = max((int(column.max(initial=0)) for column in series.values()), default=0)
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
