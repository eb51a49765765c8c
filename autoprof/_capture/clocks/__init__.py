"""Where time comes from: the host's clock, or events on a device's streams."""

from __future__ import annotations

from .accelerator import AcceleratorEvents
from .base import Clock, ClockLimits, DeviceTimes, Place, Reading, Times
from .cuda import CudaEvents
from .device import DeviceClock, EventSource, Stamp
from .host import HostClock

__all__ = [
    "Clock", "ClockLimits", "DeviceClock", "DeviceTimes", "EventSource", "HostClock", "Place", "Reading", "Stamp",
    "Times", "choose_clock",
]  # fmt: skip


def choose_clock(device_type: str, home: int | None = None) -> tuple[Clock, str | None]:
    """Return the clock for work on a kind of device, and a note when only the host's can be had.

    It reads the device of the index ``home``; None means the one that is current at each reading.
    """
    if device_type in ("cpu", "meta"):
        return HostClock(), None
    if device_type == "cuda":
        return DeviceClock(CudaEvents(), home=home), None
    try:
        source = AcceleratorEvents(device_type)
        start, end = source.new(), source.new()
        place = source.here()
        assert place is not None
        source.record(start, place)
        source.record(end, place)
        source.synchronize(end)
        source.elapsed_ns(start, end)
    except Exception as error:  # whatever a backend raises for lack of events means: no device clock
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return HostClock(), f"no timed events on {device_type!r} ({reason}); host times only"
    return DeviceClock(source, home=home), None
