"""The memory figure: memory over the steps, and memory by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._units import format_bytes
from ..frame import NOT_MEASURED, Nanoseconds
from ..summary import MemoryRow, Row
from .figures import FAINT, GRID, INK, bare, blank_figure, styled
from .fonts import Script, script_for
from .memory_text import label
from .text import elide

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODULES: Final = 20
"""The most names with a bar; more bars would be too thin to read."""
LEAST_ROWS: Final = 8
"""The least rows for the bars, so that a single bar is not a block."""
NAME_CELLS: Final = 34
_STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "allocated_bytes": {"color": "#0072b2", "zorder": 3},
    "reserved_bytes": {"color": "#e69f00", "zorder": 2},
    "peak_bytes": {"color": "#d55e00", "linestyle": (0, (4, 2)), "zorder": 4},
    "rss_bytes": {"color": "#009e73", "zorder": 3},
    "rss_peak_bytes": {"color": "#56b4e9", "linestyle": (0, (4, 2)), "zorder": 2},
}
_UNDRAWN: Final = frozenset({"inactive_split_bytes"})
"""Bytes that are part of the reserved bytes, and change with every step."""
_PARTS: Final[Mapping[str, str]] = {
    "parameters": "#0072b2",
    "gradients": "#e69f00",
    "state": "#009e73",
    "growth": "#cc79a7",
}
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
    """Readings over a run: for every ``stride`` steps their largest. ``NOT_MEASURED`` is a gap in a line."""

    steps: Nanoseconds
    series: Mapping[str, Nanoseconds]
    names: tuple[NameMemory, ...] = ()
    stride: int = 1


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
    """Return the figure: readings over steps on the left, and memory by name, where measured, on the right."""
    shown = history.names[:MODULES]
    script = script_for("".join(entry.name for entry in shown))
    with styled(script):
        figure = blank_figure(13 if shown else 9, max(4.6, 1.9 + 0.26 * len(shown)))
        if shown:
            left, right = figure.subplots(1, 2, width_ratios=(3, 2))
            _draw_names(right, shown, script)
        else:
            left = figure.subplots()
        _draw_readings(left, history)
        figure.supxlabel(_footnote(history, script), fontsize=8, color=FAINT, x=0.01, ha="left")
        figure.draw_without_rendering()  # fixes ticks and layout in this style, also for a later save
    return figure


def _draw_readings(axes: Axes, history: MemoryHistory) -> None:
    series = {key: column for key, column in history.series.items() if key.endswith("_bytes") and key not in _UNDRAWN}
    measured = [column[column != NOT_MEASURED] for column in series.values()]
    values = np.concatenate([column for column in measured if len(column)] or [np.zeros(1, dtype=np.int64)])
    scale, unit = _unit(int(values.max()))
    marker = "o" if len(history.steps) <= 40 else None
    for key, column in series.items():
        if not (column != NOT_MEASURED).any():
            continue
        style = {"color": "#7f7f7f", **_STYLES.get(key, {})}
        points = np.where(column == NOT_MEASURED, np.nan, column / scale)
        last = column[column != NOT_MEASURED][-1]
        text = f"{label(key)}  {format_bytes(int(last))}"
        axes.plot(history.steps, points, label=text, linewidth=1.6, marker=marker, markersize=3.5, **style)
    axes.set_title("Memory over steps", loc="left", fontsize=12, color=INK, pad=34)
    axes.set_xlabel("step", color=INK)
    from_zero = values.min() < 0.6 * values.max() or not values.max()
    axes.set_ylabel(unit if from_zero else f"{unit} (axis does not start at 0)", color=INK)
    _limit(axes, values / scale, from_zero)
    axes.locator_params(axis="x", integer=True)
    if len(history.steps) == 1:
        axes.set_xlim(history.steps[0] - 1, history.steps[0] + 1)
    bare(axes)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    _legend(axes)


def _limit(axes: Axes, values: np.ndarray[Any, Any], from_zero: bool) -> None:
    low, high = float(values.min()), float(values.max())
    if from_zero:
        axes.set_ylim(0, 1.08 * high or 1)
    else:
        room = max(0.08 * (high - low), 0.004 * high)
        axes.set_ylim(low - room, high + room)


def _draw_names(axes: Axes, names: Sequence[NameMemory], script: Script) -> None:
    rows = np.arange(len(names))
    reached = np.zeros(len(names))
    for at, (word, color) in enumerate(_PARTS.items()):
        part = np.array([entry.parts[at] for entry in names], dtype=float)
        if part.any():
            axes.barh(rows, part, left=reached, height=0.62, color=color, label=word)
            reached += part
    most = float(reached.max()) or 1.0
    for row, entry in enumerate(names):
        level = f"  (level {format_bytes(entry.peak_bytes)})" if entry.peak_bytes else ""
        text = f"{format_bytes(sum(entry.parts) or entry.growth_bytes)}{level}"
        axes.text(reached[row] + 0.015 * most, row, text, va="center", fontsize=8, color=INK, in_layout=False)
    levels = any(entry.peak_bytes for entry in names)
    axes.set_xlim(0, (1.75 if levels else 1.25) * most)  # room for the text after the longest bar
    axes.set_ylim(max(len(names), LEAST_ROWS) - 0.4, -0.6)
    axes.set_yticks(list(rows), [elide(script.show(entry.name), NAME_CELLS) for entry in names], fontsize=8.5)
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)  # a name may hold dollar signs
    axes.set_title("Memory by name", loc="left", fontsize=12, color=INK, pad=34)
    bare(axes)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])  # the numbers are at the bars
    _legend(axes)


def _legend(axes: Axes) -> None:
    if not axes.get_legend_handles_labels()[0]:  # a run without a recorded step: matplotlib would warn
        return
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=9, borderaxespad=0.4, borderpad=0,
        handlelength=1.6, columnspacing=1.4, labelcolor=INK,
    )  # fmt: skip
    legend.set_in_layout(False)  # it is under the title; its width must not narrow the axes


def _unit(most: int) -> tuple[int, str]:
    return next(((scale, unit) for scale, unit in _UNITS if most >= scale), (1, "B"))


def _footnote(history: MemoryHistory, script: Script) -> str:
    notes = ["Readings at the end of each step."]
    if history.stride > 1:
        notes.append(f"A point is the largest of {history.stride} steps.")
    if history.names:
        notes.append("Names include the modules in them; state: the optimizer's.")
        if any(entry.peak_bytes for entry in history.names):
            notes.append("Growth: the most over a step's calls. Level: the largest in one.")
        if len(history.names) > MODULES:
            notes.append(f"{len(history.names) - MODULES} names with less are not shown.")
    else:
        notes.append("No name was measured; set memory: true in a rule to measure its modules.")
    return " ".join(notes) + (f"\n{script.note}" if script.note else "")
