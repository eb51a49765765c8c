"""How sure a ratio of medians is: order statistics over steps that resemble their neighbours, or runs as the unit.

Steps of one run are autocorrelated: a clock that throttles or a busy neighbour slows many steps in a row, so n steps
say less than n independent ones. The interval of a median is therefore that of its order statistics (Conover,
"Practical Nonparametric Statistics", 3rd edition, 3.2), at ranks that follow from the variance of the share of steps
below the median *between batches* of neighbouring steps (batch means: Law, "Simulation Modeling and Analysis", 5th
edition, 9.5.3), corrected for what is left of the correlation between batches. Against a block bootstrap: the batches
grow with the run, so no length of a block has to be guessed; it draws nothing at random; and it holds for steps with
two modes, where the bootstrapped variance of a median is too small.

With several runs, a run is one observation: what differs between two runs of the same program (placement, clocks,
neighbours) no number of steps within one can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, exp, hypot, inf, isfinite, lgamma, log, log1p, pi, sqrt
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEWEST: Final = 20
"""Steps below which batches say nothing."""
BATCHES: Final = 10
LEVEL: Final = 0.95
_STRONGEST: Final = 0.9
"""Correlation between batches beyond which it cannot be told from a drift."""
_FARTHEST: Final = 64.0
"""Standard errors beyond which a difference is not followed."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What the steps of one rank of one run say of their median: natural logarithms, sorted.

    ``spread`` is the standard error of the share of steps below the median, ``freedom`` what it is known with.
    """

    logs: Floats
    median: float
    spread: float
    freedom: float

    @classmethod
    def of(cls, values: npt.NDArray[np.float64 | np.int64]) -> Steps:
        """Take positive values in the order of their steps."""
        logs = np.log(np.maximum(values, 1e-9))
        count, median = len(logs), float(np.median(logs))
        if count < FEWEST:  # one observation of its run: how sure it is, only other runs can tell
            return cls(np.array([median]), median, 0.0, 1.0)
        below = (logs < median) + 0.5 * (logs == median)
        spread, freedom = _error(below - 0.5)
        independent = 0.5 / sqrt(count)  # never surer than steps that know nothing of one another
        return cls(np.sort(logs), median, max(spread, independent), freedom)

    def reach(self, errors: float, up: bool) -> float:
        """Return how far the median may lie up or down: the order statistic so many standard errors away."""
        count = len(self.logs)
        at = (0.5 + (errors if up else -errors) * self.spread) * count - 0.5
        if not 0 <= at <= count - 1:
            return inf
        low = int(at)
        high = min(low + 1, count - 1)
        value = self.logs[low] + (at - low) * (self.logs[high] - self.logs[low])
        return abs(float(value) - self.median)

    @property
    def half_range(self) -> float:
        """Half the way from the least to the most: farther off no median can be."""
        return float(self.logs[-1] - self.logs[0]) / 2


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over all steps, for what is rare and long: no median sees that. ``median`` is the mean's logarithm."""

    median: float
    spread: float
    freedom: float

    @classmethod
    def of(cls, values: npt.NDArray[np.float64 | np.int64]) -> Mean:
        """Take values in the order of their steps, zero where there is nothing."""
        mean = max(float(values.mean()), 1e-9)
        if len(values) < FEWEST:
            return cls(log(mean), 0.0, 1.0)
        error, freedom = _error(values / mean - 1.0)
        return cls(log(mean), max(error, float(values.std()) / mean / sqrt(len(values))), freedom)

    def reach(self, errors: float, up: bool) -> float:
        """Return how far the mean's logarithm may lie up or down."""
        if up:
            return log1p(errors * self.spread)
        return -log1p(-errors * self.spread) if errors * self.spread < 1 else inf

    @property
    def half_range(self) -> float:
        """Nothing bounds a mean."""
        return inf


def _error(values: Any) -> tuple[float, float]:
    """Return the standard error of the mean of values around zero, by batches, and its degrees of freedom."""
    edges = np.linspace(0, len(values), BATCHES + 1).astype(np.int64)
    batches = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    square = float(batches @ batches)
    lag = float(batches[1:] @ batches[:-1]) / square if square else 0.0
    lag = min(max(lag + 1 / BATCHES, 0.0), _STRONGEST)  # 1/n is what a short series is too small by (Kendall 1954)
    inflation = (1 + lag) / (1 - lag)
    return sqrt(square / (BATCHES - 1) / BATCHES * inflation), max((BATCHES - 1) / inflation, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class RunSteps:
    """The ranks of one run. They wait for one another, so they are no independent evidence: the mean of them all."""

    ranks: tuple[Steps | Mean, ...]

    @property
    def median(self) -> float:
        """The mean of the ranks' medians."""
        return float(np.mean([rank.median for rank in self.ranks]))

    @property
    def freedom(self) -> float:
        """What the least known rank is known with."""
        return min(rank.freedom for rank in self.ranks)

    def reach(self, errors: float, up: bool) -> float:
        """Return how far the median may lie, as if all ranks were off at once."""
        return sum(rank.reach(errors, up) for rank in self.ranks) / len(self.ranks)


class Contrast(Protocol):
    """How much larger B is than A, as a natural logarithm, and how sure that is."""

    @property
    def log_ratio(self) -> float:
        """The logarithm of B's median over A's."""

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the two-sided confidence interval of the logarithm."""

    def p_above(self, log_limit: float) -> float:
        """Return the one-sided p that the logarithm is not above the limit."""

    def p_below(self, log_limit: float) -> float:
        """Return the one-sided p that the logarithm is not below the limit."""


class OfSteps:
    """One run a side: the intervals of the two medians, put together (MOVER: Zou and Donner 2008)."""

    def __init__(self, a: RunSteps, b: RunSteps) -> None:
        self._a, self._b = a, b
        self.log_ratio = b.median - a.median
        widths = [sum(side.reach(2.0, up) for up in (False, True)) for side in (a, b)]
        if all(map(isfinite, widths)) and any(widths):
            fourth = sum(width**4 / side.freedom for width, side in zip(widths, (a, b), strict=True))
            self._freedom = (widths[0] ** 2 + widths[1] ** 2) ** 2 / fourth  # Welch and Satterthwaite
        else:
            self._freedom = min(a.freedom, b.freedom)

    def _width(self, errors: float, up: bool) -> float:
        return hypot(self._b.reach(errors, up), self._a.reach(errors, not up))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        errors = t_quantile((1 + level) / 2, self._freedom)
        return self.log_ratio - self._width(errors, False), self.log_ratio + self._width(errors, True)

    def p_above(self, log_limit: float) -> float:
        return self._p(self.log_ratio - log_limit, False)

    def p_below(self, log_limit: float) -> float:
        return self._p(log_limit - self.log_ratio, True)

    def _p(self, gap: float, up: bool) -> float:
        """Return the p at which the interval's end on that side just reaches over the gap."""
        if gap <= 0:
            return 1.0
        low, high = 0.0, _FARTHEST
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (middle, high) if self._width(middle, up) < gap else (low, middle)
        return t_tail(low, self._freedom)


class OfRuns:
    """Several runs on a side or both: their medians, with the variance between runs of the same side (Student's t).

    The variance is pooled, so that a side of one run can be held against a side of several. It is never less than what
    the steps within the runs account for: a few runs may agree by luck.
    """

    def __init__(self, a: Sequence[RunSteps], b: Sequence[RunSteps]) -> None:
        medians = [np.array([run.median for run in side]) for side in (a, b)]
        self.log_ratio = float(medians[1].mean() - medians[0].mean())
        self._freedom = len(a) + len(b) - 2.0
        within = [sum(_variance(run) for run in side) / len(side) ** 2 for side in (a, b)]
        squares = sum(float(((side - side.mean()) ** 2).sum()) for side in medians)
        between = squares / self._freedom * (1 / len(a) + 1 / len(b))
        self._error = sqrt(max(between, sum(within)))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        width = t_quantile((1 + level) / 2, self._freedom) * self._error
        return self.log_ratio - width, self.log_ratio + width

    def p_above(self, log_limit: float) -> float:
        return self._p(self.log_ratio - log_limit)

    def p_below(self, log_limit: float) -> float:
        return self._p(log_limit - self.log_ratio)

    def _p(self, gap: float) -> float:
        if gap <= 0:
            return 1.0
        return t_tail(gap / self._error, self._freedom) if self._error else 0.0


def _variance(run: RunSteps) -> float:
    width = (run.reach(1.0, False) + run.reach(1.0, True)) / 2
    return min(width, *(rank.half_range for rank in run.ranks)) ** 2  # a drift has no bound of its own, but a range


def contrast(a: Sequence[RunSteps], b: Sequence[RunSteps]) -> Contrast:
    """Compare the runs of two sides, at least one each."""
    return OfSteps(a[0], b[0]) if len(a) == len(b) == 1 else OfRuns(a, b)


def t_tail(t: float, freedom: float) -> float:
    """Return the probability that Student's t exceeds ``t >= 0``.

    With t = sqrt(freedom) tan(x) the density is cos(x) ** (freedom - 1): a smooth integral over a finite interval.
    """
    low = atan(t / sqrt(freedom))
    half = (pi / 2 - low) / 2
    angles = low + half * (1 + _NODES)
    tail = half * float(_WEIGHTS @ np.cos(angles) ** (freedom - 1))
    whole = sqrt(pi) / 2 * exp(lgamma(freedom / 2) - lgamma((freedom + 1) / 2))
    return min(0.5 * tail / whole, 0.5)


def t_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t for a probability from 0.5 on."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > 1 - probability:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > 1 - probability else (low, middle)
    return high


def holm(ps: Sequence[float]) -> list[float]:
    """Return p adjusted so that 5 % is the chance of any false alarm among them (Holm 1979)."""
    adjusted, worst = [1.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        worst = max(worst, min(ps[at] * (len(ps) - rank), 1.0))
        adjusted[at] = worst
    return adjusted
