"""The values that timing logs are read into."""

from __future__ import annotations

from typing import NamedTuple


class Timing(NamedTuple):
    """The time of one name in one step."""

    step: int
    name: str
    ms: float
    """The sum over ``calls``."""
    calls: int
    total_ms: float
    """The duration of the step."""


class RunningStats:
    """Count, mean, least and most of values added one by one."""

    __slots__ = ("count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = float("inf")
        self.most = float("-inf")

    def add(self, value: float) -> None:
        """Add one value."""
        self.count += 1
        self.total += value
        self.least = min(self.least, value)
        self.most = max(self.most, value)

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return self.total / self.count
