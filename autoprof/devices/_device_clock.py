"""A clock of events on device streams: pooled, recorded without waiting, converted to times later.

``EventSource`` has the few calls in which devices differ; ``DeviceClock`` has the pools, bases and order, once for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from time import perf_counter_ns, sleep
from typing import Any, Final

import numpy as np
from torch import Tensor

from ..base.frame import NOT_MEASURED, Nanoseconds
from ._clock import Clock, DeviceTimes, Place, Reading, Times

POLL_S: Final = 0.001
"""The time between two queries of an event that the host waits for at the end of a run."""


class EventSource:
    """The calls of a device's interface that a clock needs; a subclass for torch's events adds ``here`` and ``new``."""

    device_type: str
    """The device type as torch names it."""

    def __init__(self) -> None:
        self._streams: dict[Place, Any] = {}

    @property
    def native(self) -> Mapping[str, Any]:
        """The functions of torch that a reading in C calls (``event_reader.c``); none where readings are in Python."""
        return {}

    def here(self, device: int | None = None) -> Place | None:
        """Return this thread's current stream of a device (None: of the current device), and keep it for ``record``.

        torch keeps a current stream for each device: work on tensors of a device goes there, whichever device is
        current. Returns None while the stream is being captured.
        """
        raise NotImplementedError

    def new(self) -> Any:
        """Create an event with timing."""
        raise NotImplementedError

    def index_of(self, tensor: Tensor) -> int | None:
        """Return the index of a tensor's device; None where it is of another type."""
        return tensor.get_device() if self.is_here(tensor) else None

    @cached_property
    def is_here(self) -> Callable[[Tensor], bool]:
        """The test whether a tensor is of this type: ``Tensor.is_cuda`` and its kind are four times as fast."""
        name, kind = f"is_{self.device_type}", self.device_type
        return attrgetter(name) if hasattr(Tensor, name) else lambda tensor: tensor.device.type == kind

    def record(self, event: Any, place: Place) -> None:
        """Record the event on the place's stream."""
        event.record(self._streams[place])

    def query(self, event: Any) -> bool:
        """Return whether the device has passed the event."""
        return bool(event.query())

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Return the nanoseconds between two passed events of one device."""
        elapsed_ms: float = start.elapsed_time(end)
        return round(elapsed_ms * 1e6)

    def synchronize(self, event: Any) -> None:
        """Wait for the event."""
        while not self.query(event):  # torch's own wait for a device that hangs lets no Ctrl-C through
            sleep(POLL_S)


class Stamp:
    """One reading of a device clock: the host time, and an event (None during a graph capture)."""

    __slots__ = ("event", "host_ns", "place")

    def __init__(self, event: Any) -> None:
        self.event = event
        self.host_ns = 0
        self.place: Place | None = None


class DeviceClock(Clock):
    """Read events of one type of device; each device of that type has its own pool and its own base."""

    def __init__(
        self, source: EventSource, now: Callable[[], int] = perf_counter_ns, device: int | None = None
    ) -> None:
        self.device_type = source.device_type
        self._now = now
        self._source = source
        self._pools: dict[int, list[Stamp]] = {}
        self._readers: dict[int | None, Callable[[], Stamp]] = {}
        self._native: Callable[..., Callable[[], Stamp]] | None = None
        self.use_device(device)

    def use_device(self, device: int | None) -> None:
        self.device_index = device
        self.read = self.reader(device)
        place = self._source.here(device)
        if place is not None and place[0] not in self._pools:
            # Events made at set-up: making one can stall for milliseconds (sglang#39960), which must not happen in a
            # step.
            self._pools[place[0]] = [Stamp(self._source.new()) for _ in range(256)]

    def use_native(self, make_reader: Callable[..., Callable[[], Stamp]]) -> None:
        """Have the usual reading made by an object in C: ``event_reader.c`` has the arguments of ``make_reader``."""
        if self._native is None:
            self._native = make_reader
            self._readers.clear()
            self.use_device(self.device_index)

    @property
    def now(self) -> Callable[[], int]:
        return self._now

    def index_of(self, tensor: Tensor) -> int | None:
        return self._source.index_of(tensor)

    @property
    def is_here(self) -> Callable[[Tensor], bool]:
        """A function that returns whether a tensor is on a device of this type; in C where torch has one."""
        return self._source.is_here

    def reader(self, device: int | None) -> Callable[[], Stamp]:
        # One function for each device and the whole run: hooks hold it, and compilers guard objects that hooks hold.
        if device not in self._readers:
            self._readers[device] = self._make_reader(device)
        return self._readers[device]

    def _make_reader(self, device: int | None) -> Callable[[], Stamp]:
        source, native = self._source, self._source.native

        def read() -> Stamp:
            return self._read_on(source.here(device))

        if self._native is None or not native:
            return read
        return self._native(read, source.here, device, self._pools, **native)

    def place(self, device: int | None) -> Place | None:
        return self._source.here(device)

    def read_at(self, place: Place | None) -> Stamp:
        if place is None or self._source.here() is None or self._source.here(place[0]) is None:
            place = None
        return self._read_on(place)

    def _read_on(self, place: Place | None) -> Stamp:
        if place is None:
            stamp = Stamp(None)
            stamp.host_ns = self._now()
            return stamp
        try:
            stamp = self._pools[place[0]].pop()
        except (KeyError, IndexError):  # another thread may take the last event: a check before the pop would be a race
            stamp = Stamp(self._source.new())
        stamp.place = place
        stamp.host_ns = self._now()
        self._source.record(stamp.event, place)
        return stamp

    def host_ns(self, reading: Reading) -> int:
        return int(reading.host_ns)

    def passed(self, readings: Sequence[Reading]) -> bool:
        if self._source.here() is None or self._source.here(self.device_index) is None:
            return False  # a query would kill the capture (pytorch#104487)
        return all(self._source.query(stamp.event) for stamp in _last_of_each(readings))

    def times(self, readings: Sequence[Reading]) -> Times:
        """Count device time from the first reading; on another device from its own first, aligned by host time."""
        host = np.array([stamp.host_ns for stamp in readings], dtype=np.int64)
        places = dict.fromkeys([stamp.place for stamp in readings])
        if len(places) == 1 and None not in places:
            elapsed, first = self._source.elapsed_ns, readings[0].event
            ns = np.array([elapsed(first, stamp.event) for stamp in readings], dtype=np.int64)
            return Times(host, DeviceTimes(ns, tuple(places)))
        return Times(host, self._times_by_place(readings, host))

    def _times_by_place(self, readings: Sequence[Reading], host: Nanoseconds) -> DeviceTimes:
        """Return the times of readings on several streams, or on none."""
        ns, place = (np.full(len(readings), NOT_MEASURED, dtype=np.int64) for _ in range(2))
        index: dict[Place, int] = {}
        bases: dict[int, tuple[Any, int]] = {}
        for i, stamp in enumerate(readings):
            if stamp.place is not None:
                place[i] = index.setdefault(stamp.place, len(index))
                event, begun_ns = bases.setdefault(stamp.place[0], (stamp.event, int(host[i] - host[0])))
                ns[i] = begun_ns + self._source.elapsed_ns(event, stamp.event)
        return DeviceTimes(ns, tuple(index), place)

    def release(self, readings: Sequence[Reading]) -> None:
        pools = self._pools
        for stamp in readings:
            place = stamp.place
            if place is not None:
                stamp.place = None  # marks that share a reading release it several times
                pool = pools[place[0]] if place[0] in pools else pools.setdefault(place[0], [])
                # Events kept for reuse on one device; further events of a very large step are returned to the driver.
                if len(pool) < 65_536:
                    pool.append(stamp)

    def wait(self, readings: Sequence[Reading]) -> None:
        for stamp in _last_of_each(readings):
            self._source.synchronize(stamp.event)


def _last_of_each(readings: Sequence[Reading]) -> Iterable[Stamp]:
    """Return the last event of each stream; when the device has passed it, it has passed all before it."""
    last: dict[Place | None, Stamp] = {stamp.place: stamp for stamp in readings}
    last.pop(None, None)
    return last.values()
