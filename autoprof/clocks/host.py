"""The host's monotonic clock."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

import numpy as np

from .base import ClockLimits, Reading, Times


class HostClock:
    """Read ``time.perf_counter_ns``: right for work that the host does itself."""

    device_type: str | None = None
    limits: ClockLimits | None = None
    read = staticmethod(perf_counter_ns)

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
