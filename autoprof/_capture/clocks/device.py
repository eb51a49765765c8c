"""A clock of events on device streams, whatever the device: pooled, recorded without waiting, resolved later.

What differs between devices is an ``EventSource``; pools, bases and the order of things are here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Final, Protocol

import numpy as np
from torch import Tensor

from ...frame import NOT_MEASURED, Nanoseconds
from .base import ClockLimits, DeviceTimes, Place, Reading, Times

PREPARED: Final = 256
"""Events made at set-up: making one can stall for milliseconds (sglang#39960), which no step should see."""
POOLED: Final = 65_536
"""Events kept for reuse on one device; what a giant step made beyond it is given back to the driver."""


class EventSource(Protocol):
    """The part of a device's interface that a clock needs."""

    @property
    def device_type(self) -> str:
        """The name torch has for the kind of device."""

    def here(self, device: int | None = None) -> Place | None:
        """Return a device, if none is named the current one, and the stream that this thread uses of it.

        torch keeps a current stream for each device: work on tensors of a device goes there, whichever device is
        current. None while the stream is being captured.
        """

    def index_of(self, tensor: Tensor) -> int | None:
        """Return the index of the device that a tensor lies on; None where it is of another kind."""

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
    """One reading of a device clock: the host's time, and an event (None while a graph was being captured).

    ``left`` is the same instant on the stream that this thread read before, where that was another one.
    """

    __slots__ = ("event", "host_ns", "left", "place")

    def __init__(self, event: Any) -> None:
        self.event = event
        self.host_ns = 0
        self.place: Place | None = None
        self.left: Stamp | None = None


class DeviceClock:
    """Read events of one kind of device; each device of that kind has its own pool and its own base."""

    def __init__(self, source: EventSource, now: Callable[[], int] = perf_counter_ns, home: int | None = None) -> None:
        self.device_type: str | None = source.device_type
        self.limits: ClockLimits | None = None
        self._now = now
        self._source = source
        self._pools: dict[int, list[Stamp]] = {}
        self._last: dict[int, Place] = {}
        self._readers: dict[int | None, Callable[[], Stamp]] = {}
        self.go_home(home)

    def go_home(self, device: int | None) -> None:
        self.home: int | None = device
        self.read = self.reader(device)
        place = self._source.here(device)
        if place is not None and place[0] not in self._pools:
            self._pools[place[0]] = [Stamp(self._source.new()) for _ in range(PREPARED)]

    @property
    def now(self) -> Callable[[], int]:
        """What tells the host's time."""
        return self._now

    def index_of(self, tensor: Tensor) -> int | None:
        return self._source.index_of(tensor)

    def reader(self, device: int | None) -> Callable[[], Stamp]:
        # One for each device and the whole run: hooks hold them, and compilers guard what hooks hold.
        if device not in self._readers:
            self._readers[device] = self._make_reader(device)
        return self._readers[device]

    def _make_reader(self, device: int | None) -> Callable[[], Stamp]:
        source, now, take, last_of = self._source, self._now, self._take, self._last
        here, record = source.here, source.record

        def read() -> Stamp:
            place = here(device)
            thread = get_ident()
            if place is None:
                last_of.pop(thread, None)  # the stream it was on may be the one that is captured now
                stamp = Stamp(None)
                stamp.host_ns = now()
                return stamp
            stamp = take(place)
            stamp.host_ns = now()
            record(stamp.event, place)
            last = last_of.get(thread)
            if last != place:
                last_of[thread] = place
                if last is not None:
                    left = stamp.left = take(last)
                    record(left.event, last)
            return stamp

        return read

    def place(self, device: int | None) -> Place | None:
        return self._source.here(device)

    def read_at(self, place: Place | None) -> Stamp:
        if place is None or self._source.here() is None or self._source.here(place[0]) is None:
            place = None
        stamp = Stamp(None) if place is None else self._take(place)
        stamp.host_ns = self._now()
        if place is not None:
            self._source.record(stamp.event, place)
        return stamp

    def _take(self, place: Place) -> Stamp:
        try:
            stamp = self._pools[place[0]].pop()
        except (KeyError, IndexError):  # another thread may take the last one: asking first would not be safe
            stamp = Stamp(self._source.new())
        stamp.place = place
        return stamp

    def host_ns(self, reading: Reading) -> int:
        return int(reading.host_ns)

    def passed(self, readings: Sequence[Reading]) -> bool:
        if self._source.here() is None or self._source.here(self.home) is None:
            return False  # a query would kill the capture (pytorch#104487)
        return all(self._source.query(stamp.event) for stamp in _last_of_each(readings))

    def times(self, readings: Sequence[Reading]) -> Times:
        """Count device time from the first reading; another device's events from its own first, set by host time."""
        count = len(readings)
        host = np.fromiter((stamp.host_ns for stamp in readings), dtype=np.int64, count=count)
        of = [stamp.place for stamp in readings]
        places = tuple(place for place in dict.fromkeys(of) if place is not None)
        left = [stamp.left for stamp in readings[1:]]  # the first one ended the step before
        if len(places) == 1 and None not in of and left.count(None) == len(left):
            elapsed, first = self._source.elapsed_ns, readings[0].event
            ns = np.array([elapsed(first, stamp.event) for stamp in readings], dtype=np.int64)
            return Times(host, DeviceTimes(ns, places))
        return Times(host, self._times_apart(readings, host))

    def _times_apart(self, readings: Sequence[Reading], host: Nanoseconds) -> DeviceTimes:
        """Return the times of readings on several places, or on none."""
        ns, left_ns, at, left = (np.full(len(readings), NOT_MEASURED, dtype=np.int64) for _ in range(4))
        index: dict[Place, int] = {}
        bases: dict[int, tuple[Any, int]] = {}
        for i, stamp in enumerate(readings):
            for one, into, where in ((stamp, ns, at), (stamp.left, left_ns, left)):
                if one is None or one.place is None:
                    continue
                where[i] = index.setdefault(one.place, len(index))
                base = bases.get(one.place[0])
                if base is None:
                    base = bases[one.place[0]] = (one.event, int(host[i] - host[0]))
                into[i] = base[1] + self._source.elapsed_ns(base[0], one.event)
        return DeviceTimes(ns, tuple(index), at, left, left_ns)

    def release(self, readings: Sequence[Reading]) -> None:
        for stamp in readings:
            for one in (stamp, stamp.left):
                if one is not None and one.place is not None:
                    pool = self._pools.setdefault(one.place[0], [])
                    one.place = None  # marks that share a reading bring it here several times
                    if len(pool) < POOLED:
                        pool.append(one)
            stamp.left = None

    def wait(self, readings: Sequence[Reading]) -> None:
        for stamp in _last_of_each(readings):
            self._source.synchronize(stamp.event)


def _last_of_each(readings: Sequence[Reading]) -> Iterable[Stamp]:
    """Return the last event of each place: when the device has passed it, it has passed those before."""
    last: dict[Place, Stamp] = {}
    for stamp in readings:
        if stamp.place is not None:
            last[stamp.place] = stamp
        if stamp.left is not None and stamp.left.place is not None:
            last[stamp.left.place] = stamp.left
    return last.values()
