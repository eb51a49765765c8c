"""What a clock is. One reading is one mark; what a reading means is known only to the clock that gave it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ...frame import Nanoseconds

Reading = Any
"""Host clocks read an integer; device clocks a stamp with an event in it."""


Place = tuple[int, Hashable]
"""A device's index and a stream on it."""


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """When the device passed each reading: ``ns`` since the first one (another device's: by the host's time).

    ``places`` are the streams that readings lie on, by first appearance. ``at`` has the place of each reading, as an
    index, or is None when all of them lie on the first. Where a thread's stream is another than at its reading
    before, ``left`` has the place of that one and ``left_ns`` when the device passed the same instant there.
    ``NOT_MEASURED`` stands where nothing was recorded.
    """

    ns: Nanoseconds
    places: tuple[Place, ...]
    at: Nanoseconds | None = None
    left: Nanoseconds | None = None
    left_ns: Nanoseconds | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """Readings as nanoseconds: host times since the clock's epoch, and device times where there is a device."""

    host_ns: Nanoseconds
    device: DeviceTimes | None = None


@dataclass(frozen=True, slots=True)
class ClockLimits:
    """What a clock cannot tell, in nanoseconds, found where there was nothing to time.

    ``resolution_ns`` is the smallest difference of two readings other than none. A call of nothing at all reads
    ``mark_ns`` (the median), for a mark takes time of its own between two readings, and up to ``scatter_ns`` more
    (the 95th percentile).
    """

    resolution_ns: int = 0
    mark_ns: int = 0
    scatter_ns: int = 0

    @property
    def span_ns(self) -> int:
        """The length from which on a span is more than nothing; what is shorter is shown as less than this."""
        return max(self.resolution_ns, self.mark_ns + self.scatter_ns)


class Clock(Protocol):
    """A source of readings. ``read`` never waits; only ``wait`` may, and only ``Session.close`` calls it."""

    @property
    def device_type(self) -> str | None:
        """``None`` for a host clock, else the kind of device: ``cuda``, ``xpu``, …"""

    @property
    def limits(self) -> ClockLimits | None:
        """The clock's limits where they are known beforehand; None where they are to be measured."""

    @property
    def home(self) -> int | None:
        """The index of the device that ``read`` reads; None for the one that is current, and for a host clock."""

    @property
    def read(self) -> Callable[[], Reading]:
        """What takes one reading here and now: for a device, an event on the stream that this thread uses of it."""

    def reader(self, device: int | None) -> Callable[[], Reading]:
        """Return what takes a reading on another device of the kind; None means the one that is current then."""

    def place(self, device: int | None) -> Place | None:
        """Return the stream that this thread uses of a device now; None in a capture, and for a host clock."""

    def read_at(self, place: Place | None) -> Reading:
        """Take a reading on a stream, whichever this thread uses."""

    def go_home(self, device: int | None) -> None:
        """Have ``read`` read this device from now on."""

    def index_of(self, tensor: Tensor) -> int | None:
        """Return the index of the device that a tensor lies on; None where it is of another kind than the clock's."""

    def host_ns(self, reading: Reading) -> int:
        """Return the host's time of a reading, at once."""

    def passed(self, readings: Sequence[Reading]) -> bool:
        """Tell without waiting whether the device has passed all of these readings."""

    def times(self, readings: Sequence[Reading]) -> Times:
        """Turn passed readings into nanoseconds."""

    def release(self, readings: Sequence[Reading]) -> None:
        """Take readings back that nobody will ask about again."""

    def wait(self, readings: Sequence[Reading]) -> None:
        """Block until the device has passed these readings."""
