"""The ratio of two sides' medians or means: its confidence interval and p-values, by Student's t on the logarithms.

With one run a side, steps are the observations. With several, a run is one observation: no number of steps within one
run shows how two runs of the same program differ (placement, clocks, neighbours).

Steps of one run are autocorrelated: a throttled clock slows many steps in a row, so n steps carry less information than
n independent ones. Their standard error is that of ten batches of neighbouring steps (batch means: Law, "Simulation
Modeling and Analysis", 5th edition, 9.5.3), corrected for the correlation that remains between batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, hypot, inf, log, log1p, sqrt
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...base.stats.intervals import LEVEL, t_quantile, t_tail

Floats = npt.NDArray[np.float64]

MIN_STEPS: Final = 20
"""Fewer steps than this cannot be divided into useful batches."""
BATCHES: Final = 10

_SMALLEST: Final = 1e-9
"""Lower bound for values of which the logarithm is taken."""


class Estimate(NamedTuple):
    """A logarithm with its standard errors on both sides, which are known with ``dof`` degrees of freedom."""

    log: float
    below: float
    above: float
    dof: float

    @property
    def variance(self) -> float:
        """The squared standard error of the surer side."""
        return min(self.below, self.above) ** 2

    def interval(self) -> tuple[float, float]:
        """Return the two-sided 95 % interval of the logarithm."""
        errors = t_quantile((1 + LEVEL) / 2, self.dof)
        return self.log - errors * self.below, self.log + errors * self.above

    def p_differs(self) -> float:
        """Return the two-sided p-value of "the logarithm is zero"."""
        return 2 * self._tail(abs(self.log), self.below if self.log > 0 else self.above)

    def p_above(self, limit: float) -> float:
        """Return the one-sided p-value of "the logarithm is not above the limit"."""
        return self._tail(self.log - limit, self.below)

    def _tail(self, distance: float, error: float) -> float:
        if distance <= 0:
            return 0.5
        return t_tail(distance / error if error else inf, self.dof)


def center(values: Floats, *, is_mean: bool) -> float:
    """Return the median of positive values, or the mean of values some of which may be zero."""
    return max(float(values.mean() if is_mean else np.median(values)), _SMALLEST)


def estimate_steps(values: Floats, *, is_mean: bool) -> Estimate:
    """Estimate the median, or the mean, of values in step order."""
    middle, count = center(values, is_mean=is_mean), len(values)
    # The errors are half the distances at two of them: an interval ends about there, and neither side is symmetric.
    if is_mean:
        deviations = values / middle - 1.0
        error, dof = _batch_error(deviations)
        error = 2 * max(error, float(deviations.std()) / sqrt(count))
        return Estimate(log(middle), -log1p(-error) / 2 if error < 1 else inf, log1p(error) / 2, dof)
    error, dof = _batch_error((values < middle) + 0.5 * (values == middle) - 0.5)
    share = 2 * max(error, 0.5 / sqrt(count))  # never more certain than with independent steps
    logs = np.log(np.maximum(values, _SMALLEST))
    low, high = np.quantile(logs, np.clip([0.5 - share, 0.5 + share], 0.0, 1.0))
    return Estimate(log(middle), (log(middle) - float(low)) / 2, (float(high) - log(middle)) / 2, dof)


def _batch_error(deviations: Floats) -> tuple[float, float]:
    """Return the standard error of the mean of deviations around zero, and its degrees of freedom."""
    edges = np.linspace(0, len(deviations), BATCHES + 1).astype(np.int64)
    batches = np.add.reduceat(deviations, edges[:-1]) / np.diff(edges)
    square = float(batches @ batches)
    lag = float(batches[1:] @ batches[:-1]) / square if square else 0.0
    # The correlation of a short series is underestimated by 1/n (Kendall 1954).
    # A stronger correlation between batches cannot be distinguished from a drift.
    lag = min(max(lag + 1 / BATCHES, 0.0), 0.9)
    inflation = (1 + lag) / (1 - lag)
    return sqrt(square / (BATCHES - 1) / BATCHES * inflation), max((BATCHES - 1) / inflation, 1.0)


def estimate_run(ranks: Sequence[Floats], *, is_mean: bool) -> Estimate:
    """Estimate a run from the values of its ranks, which wait for one another: all are one observation, their mean."""
    logs, below, above, dofs = zip(*(estimate_steps(values, is_mean=is_mean) for values in ranks), strict=True)
    return Estimate(float(np.mean(logs)), float(np.mean(below)), float(np.mean(above)), min(dofs))


def contrast(a: Sequence[Estimate], b: Sequence[Estimate]) -> Estimate:
    """Return the logarithm of B over A, from the runs of both sides, at least one each.

    The variance between runs is pooled, so that a side of one run can be compared with a side of several. It is never
    less than the variance within the runs: a few runs may agree by chance.
    """
    logs = [np.array([run.log for run in side]) for side in (a, b)]
    log_ratio = float(logs[1].mean() - logs[0].mean())
    within = [sum(run.variance for run in side) / len(side) ** 2 for side in (a, b)]
    dof = len(a) + len(b) - 2.0
    if dof:
        between = sum(float(((side - side.mean()) ** 2).sum()) for side in logs) / dof * (1 / len(a) + 1 / len(b))
        error = sqrt(max(between, sum(within)))
        return Estimate(log_ratio, error, error, dof)
    squares = sum(variance**2 / side[0].dof for variance, side in zip(within, (a, b), strict=True))
    dof = sum(within) ** 2 / squares if squares else min(a[0].dof, b[0].dof)  # Welch and Satterthwaite
    return Estimate(log_ratio, hypot(b[0].below, a[0].above), hypot(b[0].above, a[0].below), dof)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that 5 % is the chance of any false alarm among them (Holm 1979)."""
    adjusted, worst = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(p_values[at] * (len(p_values) - rank), 1.0))
        adjusted[at] = worst
    return adjusted


def ratio(value: float) -> float | None:
    """Return the ratio of a logarithm; None beyond every number."""
    return exp(value) if abs(value) < 500 else None
