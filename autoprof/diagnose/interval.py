"""A median and where it may lie: what rules compare instead of one noisy mean."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final, NamedTuple

import numpy as np

from ..frame import Nanoseconds

SPREAD: Final = 2 * 1.2533 / 1.6449
"""Half a 95 % interval of a median is 2 x 1.2533 sigma / sqrt(n) (its standard error under a normal distribution),
and sigma is (p95 - p50) / 1.6449. Times are skewed to the right, so p95 makes it wider than it need be."""
BIN_ERROR: Final = 0.01
"""Quantiles are within 1 % (logarithmic bins)."""


class Interval(NamedTuple):
    """A median and where it may lie: from ``low`` to ``high``."""

    low: float
    middle: float
    high: float

    def over(self, whole: Interval) -> Interval:
        """Return this as a part of another one: the widest that the two allow."""
        if whole.low <= 0:
            return Interval(0.0, 0.0, 0.0)
        return Interval(self.low / whole.high, self.middle / whole.middle, self.high / whole.low)

    @classmethod
    def of(cls, p50: float, p95: float, count: int, least: float, most: float) -> Interval:
        """Return the interval of a median of ``count`` values."""
        half = SPREAD * (p95 - p50) / sqrt(max(count, 1)) + (BIN_ERROR * p50 if most > least else 0.0)
        return cls(max(p50 - half, least), p50, min(p50 + half, most))

    @classmethod
    def of_values(cls, values: Nanoseconds) -> Interval:
        """Return the median of these values, and the order statistics between which it lies in 95 of 100 samples.

        Whatever the distribution is, the count of values below the median is binomial: n / 2 +- 1.96 sqrt(n) / 2.
        """
        ordered, count = np.sort(values), len(values)
        away = 0.98 * sqrt(count)
        low, high = max(int(count / 2 - away), 0), min(int(count / 2 + away), count - 1)
        return cls(float(ordered[low]), float(np.median(ordered)), float(ordered[high]))


def slope(points: Sequence[tuple[int, int]]) -> Interval:
    """Return the slope of the least-squares line through points, and its 95 % interval; three points at least.

    The slope's standard error times Student's t of n - 2 degrees of freedom (Draper & Smith, "Applied Regression
    Analysis", 3rd edition, 1.4); t from the normal quantile (Abramowitz & Stegun 26.7.5), 0.1 % off for 10 of them.
    """
    x, y = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    away, free = x - x.mean(), len(x) - 2
    spread = float((away**2).sum())
    middle = float((away * y).sum()) / spread
    rest = float(((y - y.mean() - middle * away) ** 2).sum())
    z = 1.96
    t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    half = t * sqrt(rest / free / spread)
    return Interval(middle - half, middle, middle + half)


def proportion(count: int, among: int) -> tuple[float, float]:
    """Return between which factors a count may vary from run to run: Wilson's 95 % interval over the proportion seen.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927), 209-212.
    """
    z2, part = 1.96**2, count / among
    middle, root = part + z2 / (2 * among), 1.96 * sqrt(part * (1 - part) / among + z2 / (4 * among**2))
    whole = 1 + z2 / among
    return max((middle - root) / whole, 0.0) / part, min((middle + root) / whole, 1.0) / part
