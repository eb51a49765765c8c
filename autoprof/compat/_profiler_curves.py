"""Times of named calls, and memory at the end of each layer, over the runs of a ``ProfilerWrapper``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from torch._C._autograd import DeviceType

from .._core.units import format_bytes
from .._flight.capture import Capture
from .._reports.figures import COLORS, TWO_COLUMNS_IN, bare, blank_figure, legend_of, set_title, settle, styled
from .._reports.text import elide_all, safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED_PATTERNS: Final[Mapping[str, str]] = {
    "aten::_flash_attention_forward": r"^aten::_flash_attention_forward$",
    "spatial block": r"(?i)spatial[ _/.-]?\w*block",
    "temporal block": r"(?i)temporal[ _/.-]?\w*block",
    "cogvideo block": r"(?i)cogvideo\w*[ _/.-]?\w*block",
}
"""The patterns of the old tool."""


class LayerMemory(NamedTuple):
    """The memory at the end of a layer's call. ``reserved_bytes``: by the device's allocator, where it was read."""

    run: int
    layer: str
    allocated_bytes: int
    reserved_bytes: int | None = None


@dataclass(slots=True)
class ProfilerCurves:
    """The calls of all runs, in order. Times are those of the device where there is one, else of the CPU."""

    patterns: Mapping[str, re.Pattern[str]]
    clock: str = "CPU"
    times_ms: dict[str, list[float]] = field(default_factory=dict)
    memory: list[LayerMemory] = field(default_factory=list)
    reserved: dict[str, list[int]] = field(default_factory=dict)
    """Reserved memory at the ends of the calls of this run, by layer."""

    def add(self, run: int, capture: Capture, base_bytes: int) -> None:
        """Add a run, which began with ``base_bytes`` of memory."""
        # The newest calls that are kept of each pattern, and of the memory.
        max_calls = 200_000
        names = capture.encoded_names
        events = capture.profile.events()
        if any(event.device_type != DeviceType.CPU for event in events):
            self.clock = "device"
        host = sorted((e for e in events if e.device_type == DeviceType.CPU), key=lambda one: one.time_range.start)
        for event in host:
            name = names.get(event.name, event.name)
            phase = re.search(r" \[(backward|recompute)\]$", name)
            suffix = phase[0] if phase else ""
            matching = {label: pattern for label, pattern in self.patterns.items() if pattern.search(name)}
            curves = [label + suffix for label, one in matching.items() if not _is_inside(event, one, names)]
            if not matching and event.name in names:  # a layer of another name
                curves.append(name)
            for curve in curves:
                times = self.times_ms.setdefault(curve, [])
                times.append((event.device_time_total if self.clock == "device" else event.cpu_time_total) / 1000)
                del times[:-max_calls]
        times_us, levels = _levels(capture.profile, base_bytes)
        layers = sorted((event for event in host if event.name in names), key=lambda one: one.time_range.end)
        for event in layers if len(levels) else ():
            at = int(np.searchsorted(times_us, event.time_range.end, side="right"))
            level = int(levels[at - 1]) if at else base_bytes
            reserved = self.reserved.get(names[event.name])
            self.memory.append(LayerMemory(run, names[event.name], level, reserved.pop(0) if reserved else None))
        del self.memory[:-max_calls]
        self.reserved.clear()

    def time_figure(self) -> Figure | None:
        """Draw the time of each call by pattern or layer; None without a call."""
        labels = elide_all([safe(name) for name in self.times_ms], 30)

        def draw(axes: Axes) -> None:
            for label, times, color in zip(labels, self.times_ms.values(), COLORS, strict=False):
                text = f"{label} (mean {np.mean(times):.3g} ms)"
                axes.plot(range(1, len(times) + 1), times, color=color, label=text, linewidth=1.2)
            axes.set_xlabel("call")
            axes.set_ylabel(f"{self.clock} time of a call (ms)")
            set_title(axes, "Time of each call, by pattern and layer")

        return _figure(draw, "Times include the cost of recording.") if self.times_ms else None

    def memory_figure(self) -> Figure | None:
        """Draw memory at the end of each layer call; None where it was not recorded."""

        mib = 2**20

        def draw(axes: Axes) -> None:
            levels = [one.allocated_bytes / mib for one in self.memory]
            axes.plot(range(1, len(levels) + 1), levels, color=COLORS[0], label="allocated", linewidth=1.2)
            reserved = {at: one.reserved_bytes for at, one in enumerate(self.memory, 1) if one.reserved_bytes}
            if reserved:
                axes.plot([*reserved], [value / mib for value in reserved.values()], color=COLORS[1], label="reserved")
            axes.set_xlabel("call of a layer, in order")
            axes.set_ylabel("memory (MiB)")
            set_title(axes, "Memory over the layers")

        return _figure(draw, "A point: the allocated memory at a layer's end.") if self.memory else None

    def memory_text(self) -> str:
        """Return the memory at the end of each layer call, one a line, run by run."""
        lines, run = ["Memory at the end of each layer"], 0
        for one in self.memory:
            if one.run != run:
                run = one.run
                lines += ["", f"step {run}"]
            reserved = "" if one.reserved_bytes is None else f", {format_bytes(one.reserved_bytes)} reserved"
            lines.append(f"{one.layer}: {format_bytes(one.allocated_bytes)} allocated{reserved}")
        return "\n".join(lines) + "\n"


def _is_inside(event: Any, pattern: re.Pattern[str], names: Mapping[str, str]) -> bool:
    """Return whether a call around this one has a matching name too: then that one counts."""
    around = event.cpu_parent
    while around is not None:
        if pattern.search(names.get(around.name, around.name)):
            return True
        around = around.cpu_parent
    return False


def _levels(profile: Any, base_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the allocated memory of the device (without one: of the CPU) after each change, and the times in µs."""
    results = profile.profiler.kineto_results
    changes = [event for event in results.events() if event.name() == "[memory]"]
    changes = [event for event in changes if event.device_type() != DeviceType.CPU] or changes
    start_ns = results.trace_start_ns()
    found = sorted(((event.start_ns() - start_ns) / 1000, event.nbytes()) for event in changes)
    return np.array([at for at, _ in found]), base_bytes + np.cumsum([bytes_ for _, bytes_ in found])


def _figure(draw: Any, note: str) -> Figure:
    with styled():
        figure = blank_figure(TWO_COLUMNS_IN, 2.7)
        axes = figure.subplots()
        draw(axes)
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="x", integer=True)
        bare(axes)
        settle(figure, [legend_of(axes)], note)
    return figure
