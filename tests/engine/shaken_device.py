"""A device on which nothing is in order, for hypothesis: the laws of the account hold there all the same."""

from __future__ import annotations

from random import Random

from autoprof.clocks import DeviceClock, Place
from autoprof.testing import FakeClock, FakeDevice, FakeEvent

PLACES: tuple[Place, ...] = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 7))
"""Three streams of one device and two of another."""


class ShakenDevice(FakeDevice):
    """Every reading finds some work queued before it; now and then the stream, or a capture, changes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.restless = self.random.choice([0.0, 0.02, 0.1, 0.4])
        lags = {place: self.random.randrange(0, 300_000) for place in PLACES}
        super().__init__(FakeClock(tick_ns=1), lags=lags)
        self._somewhere: Place = (0, 0)

    @property
    def place(self) -> Place:
        return self._somewhere

    def here(self) -> Place | None:
        if self.random.random() < self.restless:
            self._somewhere = self.random.choice(PLACES)
        return None if self.random.random() < self.restless / 10 else self._somewhere

    def record(self, event: FakeEvent, place: Place) -> None:
        self.clock.advance(self.random.choice([0, 0, 1, 10, 100_000]))
        if self.random.random() < 0.02:  # time for steps to be resolved, and for their events to be used again
            self.clock.advance(30_000_000)
        if self.random.random() < 0.5:
            self.work(self.random.choice([0, 1, 1_000, 200_000]))
        super().record(event, place)


def shaken_clock(seed: int) -> DeviceClock:
    """Return the clock of such a device."""
    return ShakenDevice(seed).device_clock()
