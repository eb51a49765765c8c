"""The ratio of two sides' medians or means: its confidence interval and one-sided p-values.

With one run a side, steps are the observations. With several, a run is one observation: no number of steps within one
run shows how two runs of the same program differ (placement, clocks, neighbours).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, isfinite, sqrt

import numpy as np

from .._stats.intervals import LEVEL, StepsMean, StepsMedian, t_quantile, t_tail


@dataclass(frozen=True, slots=True, eq=False)
class RunEstimate:
    """The ranks of one run. Ranks wait for one another, so they are one observation: the mean of their estimates."""

    ranks: tuple[StepsMedian | StepsMean, ...]

    @property
    def log_center(self) -> float:
        """The mean of the ranks' logarithms."""
        return float(np.mean([rank.log_center for rank in self.ranks]))

    @property
    def dof(self) -> float:
        """The degrees of freedom of the least certain rank."""
        return min(rank.dof for rank in self.ranks)

    def distance(self, errors: float, *, upward: bool) -> float:
        """Return the distance at ``errors`` standard errors, as if all ranks were off in the same direction."""
        return sum(rank.distance(errors, upward=upward) for rank in self.ranks) / len(self.ranks)

    @property
    def variance(self) -> float:
        """The variance within the run; a drift is bounded by the range of its values."""
        width = (self.distance(1.0, upward=False) + self.distance(1.0, upward=True)) / 2
        return min(width, *(rank.half_range for rank in self.ranks)) ** 2


class Contrast:
    """The natural logarithm of B over A, and its uncertainty.

    ``width`` returns the distance from the logarithm to an end of its interval at a number of standard errors.
    """

    def __init__(self, log_ratio: float, dof: float, width: Callable[[float, bool], float]) -> None:
        self.log_ratio = log_ratio
        self._dof = dof
        self._width = width

    def interval(self) -> tuple[float, float]:
        """Return the two-sided confidence interval of the logarithm."""
        errors = t_quantile((1 + LEVEL) / 2, self._dof)
        return self.log_ratio - self._width(errors, False), self.log_ratio + self._width(errors, True)

    def p_above(self, log_limit: float) -> float:
        """Return the one-sided p-value of "the logarithm is not above the limit"."""
        return self._p(self.log_ratio - log_limit, upward=False)

    def p_below(self, log_limit: float) -> float:
        """Return the one-sided p-value of "the logarithm is not below the limit"."""
        return self._p(log_limit - self.log_ratio, upward=True)

    def _p(self, gap: float, *, upward: bool) -> float:
        """Return the p-value at which that end of the interval is ``gap`` away."""
        if gap <= 0:
            return 1.0
        # Larger distances, in standard errors, are treated as this one.
        low, high = 0.0, 64.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (middle, high) if self._width(middle, upward) < gap else (low, middle)
        return t_tail(low, self._dof)


def contrast(a: Sequence[RunEstimate], b: Sequence[RunEstimate]) -> Contrast:
    """Compare the runs of two sides, at least one each."""
    return _contrast_steps(a[0], b[0]) if len(a) == len(b) == 1 else _contrast_runs(a, b)


def _contrast_steps(a: RunEstimate, b: RunEstimate) -> Contrast:
    """Combine the intervals of one run a side (MOVER: Zou and Donner 2008)."""
    widths = [sum(side.distance(2.0, upward=upward) for upward in (False, True)) for side in (a, b)]
    dof = min(a.dof, b.dof)
    if all(map(isfinite, widths)) and any(widths):
        fourth = sum(width**4 / side.dof for width, side in zip(widths, (a, b), strict=True))
        dof = (widths[0] ** 2 + widths[1] ** 2) ** 2 / fourth  # Welch and Satterthwaite
    return Contrast(
        b.log_center - a.log_center,
        dof,
        lambda errors, upward: hypot(b.distance(errors, upward=upward), a.distance(errors, upward=not upward)),
    )


def _contrast_runs(a: Sequence[RunEstimate], b: Sequence[RunEstimate]) -> Contrast:
    """Compare several runs on at least one side: Student's t with the variance between runs of the same side.

    The variance is pooled, so that a side of one run can be compared with a side of several. It is never less than
    the variance within the runs: a few runs may agree by chance.
    """
    centers = [np.array([run.log_center for run in side]) for side in (a, b)]
    dof = len(a) + len(b) - 2.0
    within = [sum(run.variance for run in side) / len(side) ** 2 for side in (a, b)]
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in centers)
    between = squares / dof * (1 / len(a) + 1 / len(b))
    error = sqrt(max(between, sum(within)))
    return Contrast(float(centers[1].mean() - centers[0].mean()), dof, lambda errors, _upward: errors * error)
