"""What a clock is. One reading is one mark; what a reading means is known only to the clock that gave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..span import Nanoseconds

Reading = Any
"""Host clocks read an integer; device clocks a stamp with an event in it."""


@dataclass(frozen=True, slots=True)
class Times:
    """Readings as nanoseconds: host times since the clock's epoch, device times since the first reading (or None)."""

    host_ns: Nanoseconds
    device_ns: Nanoseconds | None = None


class Clock(Protocol):
    """A source of readings. ``read`` never waits; only ``wait`` may, and only ``Session.close`` calls it."""

    @property
    def device_type(self) -> str | None:
        """``None`` for a host clock, else the kind of device: ``cuda``, ``xpu``, …"""

    @property
    def read(self) -> Callable[[], Reading]:
        """What takes one reading here and now: for a device, an event on the stream current in this thread."""

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
