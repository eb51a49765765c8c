"""Measure the quality of the clock and the cost of a span on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import numpy as np

from .._capture.calibration import LimitMeter, measure_mark_cost
from .._capture.mark_cost import MarkCost
from .._units import count, format_ns
from ..devices import Clock, ClockLimits
from .result import Result, ok, problem, unknown, warning

READS: Final = 20_000
DEVICE_TIMEOUT_S: Final = 2.0
"""Longest wait for a device."""
ROUNDS: Final = 5
COARSE_NS: Final = 1_000
"""Largest resolution and reading cost of a clock that can time a module of a few microseconds."""
FORWARD_MARKS: Final = 2
BACKWARD_MARKS: Final = 3
"""Marks of a call without and with its backward, as ``measure_mark_cost`` counts them."""
_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_FAST_SOURCES: Final = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "")


@dataclass(frozen=True, slots=True)
class ClockQuality:
    """Properties of a clock from consecutive readings, in nanoseconds."""

    resolution_ns: int
    """The smallest difference other than zero."""
    cost_ns: float
    """The median difference of two readings."""
    scatter_ns: float
    """The 99th percentile of the difference minus its median."""
    backward: int
    """Number of negative differences."""


def clock_quality(read: Callable[[], int], reads: int = READS) -> ClockQuality:
    """Read a host clock many times in a row."""
    return _quality([read() for _ in range(reads)])


def _quality(readings: list[int]) -> ClockQuality:
    steps = np.diff(np.array(readings, dtype=np.int64)).astype(np.int64)
    forward = steps[steps > 0]
    middle = float(np.median(steps))
    return ClockQuality(
        resolution_ns=int(forward.min()) if len(forward) else 0,
        cost_ns=middle,
        scatter_ns=float(np.percentile(steps, 99)) - middle,
        backward=int((steps < 0).sum()),
    )


def limits_of(clock: Clock) -> ClockLimits | None:
    """Return the limits that a session would measure; None if the device does not pass the events in time."""
    meter, until = LimitMeter(clock), monotonic() + DEVICE_TIMEOUT_S
    while meter.limits is None and monotonic() < until:
        sleep(0.001)
    return meter.limits


def check_clock(clock: Clock, source: Path = _SOURCE) -> Result:
    """Measure the clock of the spans: the host's, or events on a device."""
    limits = limits_of(clock)
    if limits is None:
        message = f"events on {clock.device_type}: the device did not pass them within {DEVICE_TIMEOUT_S:.0f} s"
        return unknown("clock", message, "check whether another process occupies it")
    below = f"shorter spans than {format_ns(limits.span_ns)} are shown with <"
    found: dict[str, float] = {"limit_ns": limits.span_ns}
    if clock.device_type is not None:
        shown = f"events on {clock.device_type}: resolution {format_ns(limits.resolution_ns)}; {below}"
        return ok("clock", shown, **found, resolution_ns=limits.resolution_ns)
    quality = clock_quality(clock.read)
    found |= {
        "resolution_ns": quality.resolution_ns,
        "cost_ns": quality.cost_ns,
        "scatter_ns": quality.scatter_ns,
    }
    if quality.backward:
        advice = "times on this machine are unreliable"
        return problem("clock", f"host clock: time went back {count(quality.backward, 'time')}", advice, **found)
    if not quality.resolution_ns:
        return problem("clock", "host clock: it does not advance", "times on this machine are unreliable")
    shown = (
        f"host clock: resolution {format_ns(quality.resolution_ns)}, {format_ns(quality.cost_ns)} from one reading to "
        f"the next, 99 % within +{format_ns(quality.scatter_ns)}; {below}"
    )
    if max(quality.resolution_ns, quality.cost_ns) > COARSE_NS:
        name = _source_name(source)
        advice = f"the kernel's clock source is {name}; tsc is faster" if name not in _FAST_SOURCES else ""
        return warning("clock", f"{shown}; short modules cannot be timed", advice, **found)
    return ok("clock", shown, **found)


def lowest_mark_cost(clock: Clock) -> MarkCost:
    """Measure the cost of a mark several times and keep the lowest: other processes only add to it."""
    costs = [measure_mark_cost(clock) for _ in range(ROUNDS)]
    return MarkCost(min(one.forward_ns for one in costs), min(one.backward_ns for one in costs))


def check_mark_cost(cost: MarkCost) -> Result:
    """Report the cost of the spans of one call, over the same call without hooks."""
    forward, both = FORWARD_MARKS * cost.forward_ns, BACKWARD_MARKS * cost.backward_ns
    found = {"forward_ns": forward, "forward_backward_ns": both}
    shown = f"{format_ns(forward)} a call for forward, {format_ns(both)} for forward and backward"
    return ok("span-cost", f"{shown}, over a call without hooks", **found)


def _source_name(source: Path) -> str:
    try:
        return source.read_text().strip()
    except OSError:
        return ""
