"""The memory figure: the finding as its title, memory over the steps, and memory by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._core.units import format_bytes
from ..frame import NOT_MEASURED, Nanoseconds
from ..summary import MemoryRow, Row, Summary
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
from .fonts import Script, script_for
from .memory_text import label
from .text import elide_all, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODULES: Final = 12
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
_RSS_REST: Final = "Python, libraries and activations"
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


@dataclass(frozen=True, slots=True)
class NameMemory:
    """Memory of one name: its tensors, the largest growth over its calls of one step, and the largest level in them.

    A level of 0 is not measured; then the growth is not measured either.
    """

    name: str
    growth_bytes: int
    peak_bytes: int
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    state_bytes: int = 0

    @property
    def parts(self) -> tuple[int, ...]:
        """The lengths of the parts of the bar, in the order of ``_PARTS``."""
        return self.parameter_bytes, self.gradient_bytes, self.state_bytes, max(self.growth_bytes, 0)


@dataclass(frozen=True, eq=False, slots=True)
class MemoryHistory:
    """Readings over a run: for every ``stride`` steps their largest. ``NOT_MEASURED`` is a gap in a line.

    ``whole`` is the memory held by the whole run (its parts as those of a name), None where it was not counted.
    """

    steps: Nanoseconds
    series: Mapping[str, Nanoseconds]
    names: tuple[NameMemory, ...] = ()
    stride: int = 1
    whole: NameMemory | None = None
    capacity_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Facts of a summary that the figure shows beside the readings."""

    names: tuple[NameMemory, ...] = ()
    whole: NameMemory | None = None
    capacity_bytes: int | None = None


def held_memory(summary: Summary) -> HeldMemory:
    """Return the memory by name, of the whole run, and of the device, as far as the summary has it."""
    wholes = [row for row in summary.memory_table if row.name is None and row.parameter_bytes is not None]
    whole = None
    if wholes:
        (whole,) = name_memory((), [replace(wholes[0], name="")]) or (None,)
    capacity = memory_capacity(summary) if "allocated_bytes" in summary.memory else None
    return HeldMemory(name_memory(summary.rows, summary.memory_table), whole, capacity)


def name_memory(rows: Iterable[Row], table: Iterable[MemoryRow] = ()) -> tuple[NameMemory, ...]:
    """Return the memory of each name, its phases merged, the name with most memory first."""
    found: dict[str, NameMemory] = {}
    for row in rows:
        if row.memory_peak_bytes is not None:
            one = found.get(row.name) or NameMemory(row.name, 0, 0)
            growth = max(one.growth_bytes, row.memory_growth_bytes or 0)
            found[row.name] = replace(one, growth_bytes=growth, peak_bytes=max(one.peak_bytes, row.memory_peak_bytes))
    for held in table:
        if held.name is not None:
            found[held.name] = replace(
                found.get(held.name) or NameMemory(held.name, 0, 0),
                parameter_bytes=(held.parameter_bytes or 0) + (held.buffer_bytes or 0),
                gradient_bytes=held.gradient_bytes or 0,
                state_bytes=held.state_bytes or 0,
            )
    names = (one for one in found.values() if one.peak_bytes or any(one.parts))
    return tuple(sorted(names, key=lambda one: (-sum(one.parts), one.name)))


def memory_figure(history: MemoryHistory) -> Figure:
    """Return the figure: readings over steps, and memory by name, as far as measured."""
    named = [entry for entry in history.names if any(entry.parts)]
    shown = named[:MODULES]
    script = script_for(entry.name for entry in shown)
    with styled(script):
        # Inches above and below the axes: titles, legends, notes.
        figure = blank_figure(TWO_COLUMNS_IN, max(2.9, 1.35 + 0.155 * len(shown)))
        is_read = any(len(column) and int(column.max()) >= 0 for column in history.series.values())
        widths = [*([3.2] if is_read else []), *([2.5] if shown else [])] or [1]
        axes = list(figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
        figure.suptitle(
            "\n".join(wrap("", finding(history), 92, room=0)), fontsize=TITLE + 1, fontweight="bold", x=0.01,
            ha="left",
        )  # fmt: skip
        legends = []
        if is_read:
            _draw_readings(axes[0], history)
            legends.append(legend_of(axes[0]))
        if shown:
            legends.append(_draw_names(axes[-1], shown, script))
        settle(figure, legends, _footnote(history, len(named) - len(shown), script))
    return figure


def finding(history: MemoryHistory) -> str:
    """Return the title: the peak, the device's memory, and the part that holds most of it."""
    peak, word = _peak(history)
    if not peak:
        return "Memory: no reading above zero" if history.series else "Memory by name"
    of = f" of {format_bytes(history.capacity_bytes)}" if history.capacity_bytes and word == "Peak" else ""
    text = f"{word} {format_bytes(peak)}{of}"
    parts = _parts_of_peak(history)
    if not parts:
        return text
    most, held = max(parts.items(), key=lambda part: part[1])
    share = f"{format_bytes(held)}, {100 * held / max(sum(parts.values()), 1):.0f} %"
    if most == _RSS_REST:
        return f"{text}, of it {format_bytes(sum(parts.values()) - held)} for the model and its optimizer"
    if held < 0.5 * peak:
        return f"{text}; largest part: {most} ({share})"
    return f"{text}, held mostly by {most} ({share})"


def _peak(history: MemoryHistory) -> tuple[int, str]:
    """Return the largest reading, of the device if there is one, and its word."""
    for keys, word in ((("peak_bytes", "allocated_bytes"), "Peak"), (("rss_peak_bytes", "rss_bytes"), "Process peak")):
        columns = [history.series[key] for key in keys if key in history.series]
        most = max((int(column.max()) for column in columns if len(column)), default=0)
        if most > 0:
            return most, word
    return 0, ""


def _parts_of_peak(history: MemoryHistory) -> dict[str, int]:
    """Return the bytes of each part of the peak; none where the model's memory or the peak is unknown."""
    peak, word = _peak(history)
    if history.whole is None or not peak:
        return {}
    held = dict(zip(_PARTS, history.whole.parts[:3], strict=False))
    rest = peak - sum(held.values())
    held["activations and other tensors" if word == "Peak" else _RSS_REST] = max(rest, 0)
    return {part: count for part, count in held.items() if count}


def _draw_readings(axes: Axes, history: MemoryHistory) -> None:
    # Inactive blocks are part of the reserved bytes, and change with every step.
    series = {
        key: column
        for key, column in history.series.items()
        if key.endswith("_bytes") and key != "inactive_split_bytes"
    }
    most = max((int(column.max()) for column in series.values() if len(column)), default=0)
    # The device's memory is drawn where it is near the peak; else only the title names it.
    capacity = history.capacity_bytes if history.capacity_bytes and history.capacity_bytes <= 2.5 * most else None
    scale, unit = _unit(max(most, 0))
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


def _draw_names(axes: Axes, names: Sequence[NameMemory], script: Script) -> Legend:
    rows = np.arange(len(names))
    reached = np.zeros(len(names))
    for at, (word, (color, hatch)) in enumerate(_PARTS.items()):
        part = np.array([entry.parts[at] for entry in names], dtype=float)
        if part.any():
            axes.barh(
                rows, part, left=reached, height=0.66, color=color, hatch=hatch, edgecolor="white", linewidth=0.5,
                label=word,
            )  # fmt: skip
            reached += part
    most = float(reached.max()) or 1.0
    for row, entry in enumerate(names):
        text = format_bytes(sum(entry.parts))
        axes.text(reached[row] + 0.02 * most, row, text, va="center", fontsize=SMALL, color=INK, in_layout=False)
    axes.set_xlim(0, 1.42 * most)  # room for the text after the longest bar
    # Leave room for six rows, so that a single bar is not a block.
    axes.set_ylim(max(len(names), 6) - 0.4, -0.6)
    labels = elide_all([script.show(entry.name) for entry in names], 28)
    axes.set_yticks(list(rows), labels, fontsize=SMALL)
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)  # a name may hold dollar signs
    set_title(axes, "Memory by name")
    bare(axes, grid=None)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])  # the numbers are at the bars
    return legend_of(axes)


def _unit(most: int) -> tuple[int, str]:
    return next(((scale, unit) for scale, unit in _UNITS if most >= scale), (1, "B"))


def _footnote(history: MemoryHistory, hidden: int, script: Script) -> str:
    notes = ["Readings at the end of each step."]
    if history.stride > 1:
        notes.append(f"A point is the largest of {history.stride} steps.")
    if history.names:
        notes.append("A name includes the modules in it.")
        if any(entry.growth_bytes > 0 for entry in history.names):
            notes.append("growth: the most over a step's calls.")
        if hidden:
            notes.append(f"{hidden} names with less are not shown.")
    else:
        notes.append("No name was measured; set memory: true in a rule to measure its modules.")
    return " ".join([*notes, *([script.note] if script.note else [])])
