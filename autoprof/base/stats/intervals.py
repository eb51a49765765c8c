"""Confidence intervals of medians, means, slopes and proportions, and Student's t.

numpy is enough: scipy takes longer to import than autoprof.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan, exp, floor, lgamma, pi, sqrt
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .median import median

Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]

LEVEL: Final = 0.95
"""Confidence level of all intervals."""
QUANTILE_ERROR: Final = 0.01
"""Relative error of the quantiles of ``Table``: its bins are logarithmic."""

_Z: Final = 1.96
"""Normal quantile of a two-sided 95 % interval."""


class Interval(NamedTuple):
    """An estimate and its 95 % confidence interval, from ``low`` to ``high``."""

    low: float
    middle: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """Return the interval of a value without uncertainty."""
        return cls(value, value, value)

    def over(self, whole: Interval) -> Interval:
        """Return the widest fraction of ``whole`` that both intervals allow."""
        if whole.low <= 0:
            return Interval(0.0, 0.0, 0.0)
        return Interval(self.low / whole.high, self.middle / whole.middle, self.high / whole.low)


def median_from_quantiles(p50: float, p95: float, count: int, minimum: float, maximum: float) -> Interval:
    """Return the median of ``count`` values with an interval estimated from two quantiles of ``Table``.

    Half the interval is twice the standard error of the median, 1 / (2 f sqrt(n)) where f is the density at it. Of a
    normal distribution that is sqrt(pi / 2) sigma / sqrt(n), with sigma of (p95 - p50) / 1.6449.
    """
    # Times are skewed to the right, so the interval is wider than necessary.
    half = 2 * 1.2533 / 1.6449 * (p95 - p50) / sqrt(max(count, 1))
    half += QUANTILE_ERROR * p50 if maximum > minimum else 0.0
    return Interval(max(p50 - half, minimum), p50, min(p50 + half, maximum))


def mean_from_moments(count: int, total: float, squares: float) -> Interval:
    """Return the mean of ``count`` independent values of which ``total`` and the sum of ``squares`` are known."""
    mean = total / max(count, 1)
    if count < 2:
        return Interval.exact(mean)
    variance = max(squares - count * mean**2, 0.0) / (count - 1)
    half = t_quantile((1 + LEVEL) / 2, count - 1) * sqrt(variance / count)
    return Interval(mean - half, mean, mean + half)


def mean_ratio(parts: Values, wholes: Values) -> Interval:
    """Return the sum of ``parts`` over the sum of ``wholes``, pairs of independent values.

    Its standard error is that of the mean residual (Cochran, "Sampling Techniques", 3rd edition, 2.11).
    """
    size, ratio = len(parts), float(parts.sum() / wholes.sum())
    residual = parts - ratio * wholes
    half = t_quantile((1 + LEVEL) / 2, size - 1) * float(residual.std(ddof=1)) / sqrt(size) / float(wholes.mean())
    return Interval(max(ratio - half, 0.0), ratio, min(ratio + half, 1.0))


def median_of_values(values: Values | Sequence[float]) -> Interval:
    """Return the median of independent values between two order statistics.

    The number of values below the median is binomial whatever the distribution is: n / 2 +- 1.96 sqrt(n) / 2
    (Conover, "Practical Nonparametric Statistics", 3rd edition, 3.2).
    """
    ordered, count = np.sort(np.asarray(values)), len(values)
    outside = max(floor((count - _Z * sqrt(count)) / 2), 0)
    return Interval(float(ordered[outside]), float(median(ordered)), float(ordered[count - 1 - outside]))


def slope(points: Sequence[tuple[int, int]]) -> Interval:
    """Return the slope of the least-squares line through at least three points, with Student's interval."""
    x, y = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    from_mean, dof = x - x.mean(), len(x) - 2
    squares = float((from_mean**2).sum())
    middle = float((from_mean * y).sum()) / squares
    residual = float(((y - y.mean() - middle * from_mean) ** 2).sum())
    half = t_quantile((1 + LEVEL) / 2, dof) * sqrt(residual / dof / squares)
    return Interval(middle - half, middle, middle + half)


def proportion_factors(count: int, among: int) -> tuple[float, float]:
    """Return the factors by which a proportion may vary from run to run: Wilson's interval over the observed value.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927), 209-212.
    """
    z2, part = _Z**2, count / among
    middle, root = part + z2 / (2 * among), _Z * sqrt(part * (1 - part) / among + z2 / (4 * among**2))
    whole = 1 + z2 / among
    return max((middle - root) / whole, 0.0) / part, min((middle + root) / whole, 1.0) / part


def t_tail(t: float, dof: float) -> float:
    """Return the probability that Student's t with ``dof`` degrees of freedom exceeds ``t >= 0``.

    With t = sqrt(dof) tan(x) the density is cos(x) ** (dof - 1): a smooth integral over a finite interval.
    """
    # Intervals of the numerical integral of Student's t.
    intervals = 4096
    low = atan(t / sqrt(dof))
    width = (pi / 2 - low) / intervals
    # The midpoint rule leaves out the end of the range, where the density is zero.
    tail = width * float((np.cos(low + width * (np.arange(intervals) + 0.5)) ** (dof - 1)).sum())
    whole = sqrt(pi) / 2 * exp(lgamma(dof / 2) - lgamma((dof + 1) / 2))
    return min(0.5 * tail / whole, 0.5)


def t_quantile(probability: float, dof: float) -> float:
    """Return the quantile of Student's t for a probability of 0.5 or more."""
    low, high = 0.0, 1.0
    while t_tail(high, dof) > 1 - probability:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, dof) > 1 - probability else (low, middle)
    return high
