"""A clock of events on device streams, whatever the device: pooled, recorded without waiting, resolved later.

What differs between devices is an ``EventSource``; pools, bases and the order of things are here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from time import perf_counter_ns
from typing import Any, Final, Protocol

import numpy as np

from ..span import NOT_MEASURED
from .base import Reading, Times

PREPARED: Final = 256
"""Events made at set-up: making one can stall for milliseconds (sglang#39960), which no step should see."""
POOLED: Final = 65_536
"""Events kept for reuse on one device; what a giant step made beyond it is given back to the driver."""

Place = tuple[int, Hashable]
"""A device's index and a stream on it."""


class EventSource(Protocol):
    """The part of a device's interface that a clock needs."""

    @property
    def device_type(self) -> str:
        """The name torch has for the kind of device."""

    def here(self) -> Place | None:
        """Return the device and stream current in this thread; None while the stream is being captured."""

    def new(self) -> Any:
        """Make an event that keeps time."""

    def record(self, event: Any, place: Place) -> None:
        """Record the event on the place's stream."""

    def query(self, event: Any) -> bool:
        """Tell whether the device has passed the event."""

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Return the nanoseconds between two passed events of one device."""

    def synchronize(self, event: Any) -> None:
        """Wait for the event."""


class Stamp:
    """One reading of a device clock: the host's time, and an event (None while a graph was being captured)."""

    __slots__ = ("event", "host_ns", "place")

    def __init__(self, event: Any) -> None:
        self.event = event
        self.host_ns = 0
        self.place: Place | None = None


class DeviceClock:
    """Read events of one kind of device; each device of that kind has its own pool and its own base."""

    def __init__(self, source: EventSource, now: Callable[[], int] = perf_counter_ns) -> None:
        self.device_type: str | None = source.device_type
        self._now = now
        self._source = source
        self._pools: dict[int, list[Stamp]] = {}
        place = source.here()
        if place is not None:
            self._pools[place[0]] = [Stamp(source.new()) for _ in range(PREPARED)]

    def read(self) -> Stamp:
        place = self._source.here()
        if place is None:
            stamp = Stamp(None)
            stamp.host_ns = self._now()
            return stamp
        try:
            stamp = self._pools[place[0]].pop()
        except (KeyError, IndexError):  # another thread may take the last one: asking first would not be safe
            stamp = Stamp(self._source.new())
        stamp.place = place
        stamp.host_ns = self._now()
        self._source.record(stamp.event, place)
        return stamp

    def host_ns(self, reading: Reading) -> int:
        return int(reading.host_ns)

    def passed(self, readings: Sequence[Reading]) -> bool:
        if self._source.here() is None:  # a query would kill the capture (pytorch#104487)
            return False
        last = {stamp.place: stamp for stamp in readings if stamp.place is not None}
        return all(self._source.query(stamp.event) for stamp in last.values())

    def times(self, readings: Sequence[Reading]) -> Times:
        """Count device time from the first reading; another device's events from its own first, set by host time."""
        count = len(readings)
        host = np.fromiter((stamp.host_ns for stamp in readings), dtype=np.int64, count=count)
        device = np.full(count, NOT_MEASURED, dtype=np.int64)
        bases: dict[int, tuple[Any, int]] = {}
        elapsed = self._source.elapsed_ns
        for i, stamp in enumerate(readings):
            if stamp.place is None:
                continue
            base = bases.get(stamp.place[0])
            if base is None:
                base = bases[stamp.place[0]] = (stamp.event, stamp.host_ns - int(host[0]))
                device[i] = base[1]
            else:
                device[i] = base[1] + elapsed(base[0], stamp.event)
        return Times(host, device)

    def release(self, readings: Sequence[Reading]) -> None:
        for stamp in readings:
            if stamp.place is not None:
                pool = self._pools.setdefault(stamp.place[0], [])
                if len(pool) < POOLED:
                    pool.append(stamp)

    def wait(self, readings: Sequence[Reading]) -> None:
        for stamp in {stamp.place: stamp for stamp in readings if stamp.place is not None}.values():
            self._source.synchronize(stamp.event)
