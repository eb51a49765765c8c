"""Times of named calls, and memory at the end of each layer, over the runs of a ``ProfilerWrapper``."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from torch._C._autograd import DeviceType

from ..base.units import format_bytes
from ..devices import HostMemory
from ..reports.figures import COLORS, TWO_COLUMNS_IN, bare, blank_figure, set_title, settle, styled
from ..reports.text import elide_all, safe
from ..session.flight.capture import Capture

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


MAX_CALLS: Final = 200_000
"""The newest calls that are kept of each pattern, and of the memory."""


class LayerMemory(NamedTuple):
    """The memory at the end of a layer's call: allocated and reserved on a device, else resident in the process."""

    run: int
    layer: str
    used_bytes: int
    reserved_bytes: int | None = None

    @classmethod
    def read(cls, run: int, layer: str) -> LayerMemory:
        """Read the memory now, without waiting for the device."""
        if torch.cuda.is_available():
            return cls(run, layer, torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        source = HostMemory()
        used_bytes = source.level_bytes()
        source.close()
        return cls(run, layer, used_bytes)

    @property
    def kind(self) -> str:
        """The kind of memory that ``used_bytes`` counts."""
        return "resident" if self.reserved_bytes is None else "allocated"


@dataclass(slots=True)
class ProfilerCurves:
    """The calls of all runs, in order. Times are those of the device where there is one, else of the CPU."""

    patterns: Mapping[str, re.Pattern[str]]
    clock: str = "CPU"
    times_ms: dict[str, list[float]] = field(default_factory=dict)
    memory: deque[LayerMemory] = field(default_factory=lambda: deque(maxlen=MAX_CALLS))

    def add(self, capture: Capture) -> None:
        """Add a run."""
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
                del times[:-MAX_CALLS]

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
            calls, kind = range(1, len(self.memory) + 1), self.memory[0].kind
            axes.plot(calls, [one.used_bytes / mib for one in self.memory], color=COLORS[0], label=kind, linewidth=1.2)
            reserved = [one.reserved_bytes / mib for one in self.memory if one.reserved_bytes is not None]
            if reserved:
                axes.plot(calls, reserved, color=COLORS[1], label="reserved")
            axes.set_xlabel("call of a layer, in order")
            axes.set_ylabel("memory (MiB)")
            set_title(axes, "Memory over the layers")

        return _figure(draw, "A point: the memory at a layer's end.") if self.memory else None

    def memory_text(self) -> str:
        """Return the memory at the end of each layer call, one a line, run by run."""
        lines, run = ["Memory at the end of each layer"], 0
        for one in self.memory:
            if one.run != run:
                run = one.run
                lines += ["", f"step {run}"]
            reserved = "" if one.reserved_bytes is None else f", {format_bytes(one.reserved_bytes)} reserved"
            lines.append(f"{one.layer}: {format_bytes(one.used_bytes)} {one.kind}{reserved}")
        return "\n".join(lines) + "\n"


def _is_inside(event: Any, pattern: re.Pattern[str], names: Mapping[str, str]) -> bool:
    """Return whether a call around this one has a matching name too: then that one counts."""
    around = event.cpu_parent
    while around is not None:
        if pattern.search(names.get(around.name, around.name)):
            return True
        around = around.cpu_parent
    return False


def _figure(draw: Any, note: str) -> Figure:
    with styled():
        figure = blank_figure(TWO_COLUMNS_IN, 2.7)
        axes = figure.subplots()
        draw(axes)
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="x", integer=True)
        bare(axes)
        settle(figure, note)
    return figure
