"""Read a trace: nest the slices of the host, and assign each kernel to the slice that launched it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ..errors import OutputError
from .memory_levels import MemoryLevels
from .profile import STEP_PREFIX
from .trace import Sizes, read_events

OPERATOR: Final = "cpu_op"
RANGE: Final = "user_annotation"
LAUNCHES: Final = frozenset({"cuda_runtime", "cuda_driver", "xpu_runtime", "privateuse1_runtime"})
ON_DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "privateuse1_kernel"})
OLDER_CATEGORIES: Final = {
    "Operator": OPERATOR, "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset",
}  # fmt: skip
"""Categories in traces of torch before 1.12 (``EventTypeMap`` in kineto, tb_plugin, profiler/trace.py)."""


class HostSlice:
    """An operator or a range on the host, with the time of nested slices and launched kernels."""

    __slots__ = (
        "device_inside", "device_own", "device_ranges", "end", "inside", "is_range", "name", "parent", "ranges",
        "start",
    )  # fmt: skip

    def __init__(self, name: str, start: int, end: int, is_range: bool) -> None:
        self.name = name
        self.start = start
        self.end = end
        self.is_range = is_range
        self.parent: HostSlice | None = None
        self.inside = 0
        """Nanoseconds of directly nested slices; ``ranges``: of the outermost nested ranges."""
        self.ranges = 0
        self.device_own = 0
        """Nanoseconds of its own kernels; ``inside``: including nested slices; ``ranges``: of nested ranges."""
        self.device_inside = 0
        self.device_ranges = 0

    def ancestry(self) -> Iterator[HostSlice]:
        """Yield this slice and its ancestors, innermost first."""
        current: HostSlice | None = self
        while current is not None:
            yield current
            current = current.parent


class Kernel:
    """A kernel, copy or fill on the device, and the slice that launched it."""

    __slots__ = ("correlation", "duration", "external", "launcher", "name", "start")

    def __init__(self, name: str, start: int, duration: int, correlation: Any, external: Any) -> None:
        self.name = name
        self.start = start
        self.duration = duration
        self.correlation = correlation
        self.external = external
        self.launcher: HostSlice | None = None


class Trace:
    """The slices, kernels, launches and memory levels of a trace."""

    def __init__(self) -> None:
        self.sizes = Sizes()
        self.levels = MemoryLevels()
        self.kernels: list[Kernel] = []
        self.threads: dict[Any, list[HostSlice]] = {}
        self.launches: dict[Any, tuple[Any, int]] = {}
        self.externals: dict[Any, HostSlice] = {}
        self.broken: str | None = None
        """The error at which reading stopped, if it did."""
        self._zero: float | None = None

    def add(self, event: dict[str, Any]) -> None:
        """Add one event of the trace."""
        kind, phase = event.get("cat"), event.get("ph")
        kind = OLDER_CATEGORIES.get(str(kind), kind)
        if kind == OPERATOR and str(event.get("name")).startswith(STEP_PREFIX):
            kind = RANGE
        args = event.get("args") or {}
        if phase == "i" and event.get("name") == "[memory]":
            self.levels.add(self._ns(event["ts"]), args)
        if phase != "X":
            return
        if kind in (OPERATOR, RANGE):
            start = self._ns(event["ts"])
            slice_ = HostSlice(str(event.get("name")), start, start + _length(event), kind == RANGE)
            self.threads.setdefault(event.get("tid"), []).append(slice_)
            if "External id" in args:
                self.externals[args["External id"]] = slice_
        elif kind in LAUNCHES:
            if "correlation" in args:
                self.launches[args["correlation"]] = event.get("tid"), self._ns(event["ts"])
        elif kind in ON_DEVICE:
            kernel = Kernel(
                str(event.get("name")),
                self._ns(event["ts"]),
                _length(event),
                args.get("correlation"),
                args.get("External id"),
            )
            self.kernels.append(kernel)

    def _ns(self, microseconds: Any) -> int:
        value = float(microseconds)
        if self._zero is None:
            self._zero = value
        return round(1000 * (value - self._zero))

    def nest(self) -> None:
        """Nest the slices of each thread and assign each kernel to its launcher."""
        starts: dict[Any, list[int]] = {}
        for thread, slices in self.threads.items():
            slices.sort(key=lambda one: (one.start, -one.end))
            _nest(slices)
            starts[thread] = [one.start for one in slices]
        for kernel in self.kernels:
            kernel.launcher = self._launcher(kernel, starts) or self.externals.get(kernel.external)
            if kernel.launcher is not None:
                kernel.launcher.device_own += kernel.duration
                for one in kernel.launcher.ancestry():
                    one.device_inside += kernel.duration
        for one in (one for slices in self.threads.values() for one in slices if one.is_range):
            around = next((other for other in one.ancestry() if other.is_range and other is not one), None)
            if around is not None:
                around.ranges += one.end - one.start
                around.device_ranges += one.device_inside

    def _launcher(self, kernel: Kernel, starts: dict[Any, list[int]]) -> HostSlice | None:
        thread, at = self.launches.get(kernel.correlation, (None, 0))
        index = bisect_right(starts[thread], at) - 1 if thread in starts else -1
        if index < 0:
            return None
        return next((one for one in self.threads[thread][index].ancestry() if one.end >= at), None)


def _nest(slices: list[HostSlice]) -> None:
    open_: list[HostSlice] = []
    for one in slices:
        while open_ and open_[-1].end < one.end:  # it has ended, or the two overlap without nesting
            open_.pop()
        if open_:
            one.parent = open_[-1]
            one.parent.inside += one.end - one.start
        open_.append(one)


def _length(event: dict[str, Any]) -> int:
    return round(1000 * float(event.get("dur") or 0))


def scan(path: Path, names: Mapping[str, str] = MappingProxyType({})) -> Trace:
    """Read a trace file once; ``names`` maps encoded names to real ones. Raises ``OutputError`` for other files."""
    trace = Trace()
    try:
        for event, text in read_events(path):
            if event.get("name") in names:
                event["name"] = names[event["name"]]
            trace.sizes.add(event, len(text.encode("utf-8", "replace")) + 2)
            trace.add(event)
    except OutputError as error:
        if not trace.threads:
            raise
        trace.broken = str(error)
    trace.nest()
    return trace
