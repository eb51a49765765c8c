"""Confidence intervals of medians, means, slopes and proportions, Student's t, and tests of many rows at once.

Steps of one run are autocorrelated: a throttled clock slows many steps in a row, so n steps carry less information than
n independent ones. ``StepsMedian`` and ``StepsMean`` take their standard error from the variance *between batches* of
neighbouring steps (batch means: Law, "Simulation Modeling and Analysis", 5th edition, 9.5.3), corrected for the
correlation that remains between batches. Nothing is random, and no block length has to be chosen. numpy is enough:
scipy takes longer to import than autoprof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, exp, floor, inf, lgamma, log, log1p, pi, sqrt
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .median import median

Floats = npt.NDArray[np.float64]
Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]

LEVEL: Final = 0.95
"""Confidence level of all intervals."""
MIN_STEPS: Final = 20
"""Fewer steps than this cannot be divided into useful batches."""
BATCHES: Final = 10
QUANTILE_ERROR: Final = 0.01
"""Relative error of the quantiles of ``Table``: its bins are logarithmic."""

_Z: Final = 1.96
"""Normal quantile of a two-sided 95 % interval."""
_SMALLEST: Final = 1e-9
"""Lower bound for values of which the logarithm is taken."""


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
    """Return the median of ``count`` values with an interval estimated from two quantiles of ``Table``."""
    # Half the interval is twice the standard error, 1.2533 sigma / sqrt(n) under a normal distribution with sigma of
    # (p95 - p50) / 1.6449. Times are skewed to the right, so the interval is wider than necessary.
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


@dataclass(frozen=True, slots=True, eq=False)
class StepsMedian:
    """The logarithm of the median over autocorrelated steps, and its uncertainty.

    ``logs`` are the sorted natural logarithms of the values. ``standard_error`` is that of the share of steps below
    the median, known with ``dof`` degrees of freedom.
    """

    logs: Floats
    log_center: float
    standard_error: float
    dof: float

    @classmethod
    def of(cls, values: Values) -> StepsMedian:
        """Estimate the median of positive values in step order."""
        logs = np.log(np.maximum(values, _SMALLEST))
        count, middle = len(logs), float(median(logs))
        if count < MIN_STEPS:  # a single observation of its run: only further runs show its uncertainty
            return cls(np.array([middle]), middle, 0.0, 1.0)
        below = (logs < middle) + 0.5 * (logs == middle)
        error, dof = batch_standard_error(below - 0.5)
        independent = 0.5 / sqrt(count)  # never more certain than with independent steps
        return cls(np.sort(logs), middle, max(error, independent), dof)

    def distance(self, errors: float, *, upward: bool) -> float:
        """Return the distance from the median to the order statistic ``errors`` standard errors away.

        Beyond the smallest and the largest value it grows with the square: where values drift or are few, the end of
        the interval lies outside all of them.
        """
        count = len(self.logs)
        at = (0.5 + (errors if upward else -errors) * self.standard_error) * count - 0.5
        if not 0 <= at <= count - 1:
            middle, end = (count - 1) / 2, count - 1 if upward else 0
            if self.logs[end] == self.log_center:
                return inf
            return abs(float(self.logs[end]) - self.log_center) * (abs(at - middle) / max(middle, 0.5)) ** 2
        low = int(at)
        high = min(low + 1, count - 1)
        value = self.logs[low] + (at - low) * (self.logs[high] - self.logs[low])
        return abs(float(value) - self.log_center)

    @property
    def half_range(self) -> float:
        """Half the distance from the smallest to the largest value: an upper bound of any distance."""
        return float(self.logs[-1] - self.logs[0]) / 2


@dataclass(frozen=True, slots=True)
class StepsMean:
    """The logarithm of the mean over all steps, for rare long events that a median does not show."""

    log_center: float
    standard_error: float
    dof: float

    @classmethod
    def of(cls, values: Values) -> StepsMean:
        """Estimate the mean of values in step order, zero where the event did not occur."""
        mean = max(float(values.mean()), _SMALLEST)
        if len(values) < MIN_STEPS:
            return cls(log(mean), 0.0, 1.0)
        error, dof = batch_standard_error(values / mean - 1.0)
        return cls(log(mean), max(error, float(values.std()) / mean / sqrt(len(values))), dof)

    def distance(self, errors: float, *, upward: bool) -> float:
        """Return the distance of the logarithm from its center at ``errors`` standard errors."""
        if upward:
            return log1p(errors * self.standard_error)
        return -log1p(-errors * self.standard_error) if errors * self.standard_error < 1 else inf

    @property
    def half_range(self) -> float:
        """Infinite: a mean has no such bound."""
        return inf


def batch_standard_error(values: Floats) -> tuple[float, float]:
    """Return the standard error of the mean of values around zero, from batch means, and its degrees of freedom."""
    edges = np.linspace(0, len(values), BATCHES + 1).astype(np.int64)
    batches = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    square = float(batches @ batches)
    lag = float(batches[1:] @ batches[:-1]) / square if square else 0.0
    # The correlation of a short series is underestimated by 1/n (Kendall 1954).
    # A stronger correlation between batches cannot be distinguished from a drift.
    lag = min(max(lag + 1 / BATCHES, 0.0), 0.9)
    inflation = (1 + lag) / (1 - lag)
    return sqrt(square / (BATCHES - 1) / BATCHES * inflation), max((BATCHES - 1) / inflation, 1.0)


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


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that 5 % is the chance of any false alarm among them (Holm 1979)."""
    adjusted, worst = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(p_values[at] * (len(p_values) - rank), 1.0))
        adjusted[at] = worst
    return adjusted
