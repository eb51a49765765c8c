"""The clock protocol, the times that a clock returns, and the host's clock. A mark is one reading of a clock."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
from torch import Tensor

from ..base.frame import Nanoseconds

Reading = Any
"""One reading of a clock: an integer of a host clock, a ``Stamp`` with an event of a device clock."""

Place = tuple[int, Hashable]
"""A device's index and a stream on it."""


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """When the device passed each reading: ``ns`` since the first one (on another device: by the host's time).

    ``places`` are the streams of the readings, by first appearance. ``place`` has each reading's stream as an index
    into it, or is None when all readings are on the first. ``NOT_MEASURED`` marks readings without an event.
    """

    ns: Nanoseconds
    places: tuple[Place, ...]
    place: Nanoseconds | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """Readings in nanoseconds: host times since the clock's epoch, and device times where there is a device."""

    host_ns: Nanoseconds
    device: DeviceTimes | None = None


@dataclass(frozen=True, slots=True)
class ClockLimits:
    """The limits of a clock in nanoseconds, measured by timing nothing.

    ``resolution_ns`` is the smallest difference of two readings other than zero. An empty call reads ``mark_ns`` (the
    median), because a mark itself takes time between two readings, and up to ``scatter_ns`` more (the 95th percentile).
    """

    resolution_ns: int = 0
    mark_ns: int = 0
    scatter_ns: int = 0

    @property
    def span_ns(self) -> int:
        """The shortest span that differs from an empty one; a shorter span is shown as less than this."""
        return max(self.resolution_ns, self.mark_ns + self.scatter_ns)


class Clock:
    """A source of readings. ``read`` never waits; only ``wait`` may, and only ``Session.close`` calls it.

    The methods are those of a host clock: a subclass for a device has its own.
    """

    device_type: str | None = None
    """``None`` for a host clock, else the type of device: ``cuda``, ``xpu``, …"""
    limits: ClockLimits | None = None
    """The clock's limits where they are known beforehand; None where they have to be measured."""
    device_index: int | None = None
    """The index of the device that ``read`` reads; None for the current device, and for a host clock."""
    read: Callable[[], Reading] = staticmethod(perf_counter_ns)
    """A function that takes one reading: for a device, an event on this thread's current stream."""

    peek: Callable[[], int] = staticmethod(perf_counter_ns)
    """A function that reads the host's time to decide, not to measure: the clock of a test does not advance at it."""

    @property
    def now(self) -> Callable[[], int]:
        """The function that reads the host's time."""
        return self.read

    def reader(self, device: int | None) -> Callable[[], Reading]:
        """Return a function that reads another device of the same type; None means the current device."""
        return self.read

    def place(self, device: int | None) -> Place | None:
        """Return this thread's current stream of a device; None during a graph capture, and for a host clock."""
        return None

    def read_at(self, place: Place | None) -> Reading:
        """Take a reading on a given stream, whether or not it is this thread's current one."""
        return self.read()

    def use_device(self, device: int | None) -> None:
        """Set the device that ``read`` reads from now on."""

    def index_of(self, tensor: Tensor) -> int | None:
        """Return the index of a tensor's device; None where its type is not the clock's."""
        return None

    host_ns: Callable[[Reading], int] = staticmethod(int)
    """Return the host time of a reading, without waiting."""

    def passed(self, readings: Sequence[Reading]) -> bool:
        """Return whether the device has passed all of these readings, without waiting."""
        return True

    def times(self, readings: Sequence[Reading]) -> Times:
        """Convert passed readings to nanoseconds."""
        return Times(np.array(readings, dtype=np.int64))

    def release(self, readings: Sequence[Reading]) -> None:
        """Return readings to the pool; they are not used again."""

    def wait(self, readings: Sequence[Reading]) -> None:
        """Block until the device has passed these readings."""


class HostClock(Clock):
    """The host's monotonic clock, ``time.perf_counter_ns``: right for work of the host itself."""
