"""The host's monotonic clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns

import numpy as np
from torch import Tensor

from .base import ClockLimits, Place, Reading, Times


class HostClock:
    """Read ``time.perf_counter_ns``: right for work that the host does itself."""

    device_type: str | None = None
    home: int | None = None
    limits: ClockLimits | None = None
    read = staticmethod(perf_counter_ns)

    def reader(self, device: int | None) -> Callable[[], Reading]:
        return self.read

    def place(self, device: int | None) -> Place | None:
        return None

    def read_at(self, place: Place | None) -> Reading:
        return self.read()

    def go_home(self, device: int | None) -> None:
        pass

    def index_of(self, tensor: Tensor) -> int | None:
        return None

    def host_ns(self, reading: Reading) -> int:
        return int(reading)

    def passed(self, readings: Sequence[Reading]) -> bool:
        return True

    def times(self, readings: Sequence[Reading]) -> Times:
        return Times(np.array(readings, dtype=np.int64))

    def release(self, readings: Sequence[Reading]) -> None:
        pass

    def wait(self, readings: Sequence[Reading]) -> None:
        pass
