"""A device on which nothing is in order, for hypothesis: the laws of the account hold there all the same."""

from collections.abc import MutableMapping
from random import Random

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from autoprof.devices import DeviceClock, Place
from autoprof.testing import FakeClock, FakeDevice, FakeEvent

PLACES: tuple[Place, ...] = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 7))
"""Three streams of one device and two of another."""


class ShakenDevice(FakeDevice):
    """Every reading finds some work queued before it; now and then the stream, or a capture, changes.

    Most have the model's tensors on several devices, wherever the host is, and move them now and then.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.restless = self.random.choice([0.0, 0.02, 0.1, 0.4])
        lags = {place: self.random.randrange(0, 300_000) for place in PLACES}
        super().__init__(FakeClock(tick_ns=1), lags=lags)
        self._somewhere: Place = (0, 0)
        self.spread = self.random.random() < 0.8
        self._used: dict[int, Place] = {}
        self._lies: MutableMapping[Tensor, int | None] = WeakIdKeyDictionary()

    @property
    def place(self) -> Place:
        return self._somewhere

    def here(self, device: int | None = None) -> Place | None:
        if self.random.random() < self.restless:
            self._somewhere = self.random.choice(PLACES)
        if self.random.random() < self.restless / 10:
            return None
        return self._somewhere if device is None else self.place_on(device)

    def place_on(self, device: int) -> Place:
        if self.random.random() < self.restless:
            self._used[device] = self.random.choice([place for place in PLACES if place[0] == device])
        return self._used.get(device, (device, 0))

    def index_of(self, tensor: Tensor) -> int | None:
        if not self.spread:
            return None
        if tensor not in self._lies:
            self._lies[tensor] = self.random.choice([None, 0, 0, 1, 1])
        elif tensor.is_leaf and self.random.random() < 0.1:  # the user has moved the module
            self._lies[tensor] = self.random.choice([None, 0, 1])
        return self._lies[tensor]

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
