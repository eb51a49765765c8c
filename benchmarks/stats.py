"""Medians over rounds, paired with the bare run of the same round, with intervals from the bootstrap.

The intervals of ``autoprof.base.stats.intervals`` are for the median of one column. A ratio of costs combines the
medians of three columns of the same rounds, whose common noise cancels only if the rounds are resampled together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ENOUGH: Final = 8
"""Fewest rounds for a useful bootstrap."""
RESAMPLES: Final = 2000
LEVEL: Final = 0.95
_SEED: Final = 20240501
"""Fixed, so that the same samples always give the same interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median and the interval that holds it with 95 % confidence, given how much the rounds differ."""

    value: float
    low: float
    high: float
    rounds: int

    def excludes(self, limit: float) -> bool:
        """Whether the interval lies on one side of the limit."""
        return self.rounds >= ENOUGH and not self.low <= limit <= self.high


def estimate(statistic: Callable[[npt.NDArray[np.int64]], Floats], count: int) -> Estimate:
    """Estimate a statistic over ``count`` rounds.

    ``statistic`` takes indices of rounds (resamples × count) and returns one value a resample. The same rounds are
    drawn for every series in the statistic, so that a slow round cancels.
    """
    everything = np.arange(count)[None, :]
    drawn = np.random.default_rng(_SEED).integers(0, count, (RESAMPLES, count))
    value, values = float(statistic(everything)[0]), statistic(drawn)
    known = values[~np.isnan(values)]
    if np.isnan(value) or not len(known):
        return Estimate(np.nan, np.nan, np.nan, count)
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high), count)


def median(samples: Sequence[float]) -> Estimate:
    """Estimate the median of samples, one a round."""
    column = np.asarray(samples, dtype=np.float64)
    return estimate(lambda rounds: np.asarray(np.median(column[rounds], axis=1)), len(column))


def ratio(variant: Sequence[float], bare: Sequence[float]) -> Estimate:
    """Estimate the median of the rounds' own ratios."""
    return median(np.asarray(variant, dtype=np.float64) / np.asarray(bare, dtype=np.float64))  # type: ignore[arg-type]


def difference(variant: Sequence[float] | Floats, bare: Sequence[float] | Floats, per: float = 1.0) -> Estimate:
    """Estimate the median of the rounds' own differences, per module where ``per`` is their number."""
    return median((np.asarray(variant, dtype=np.float64) - np.asarray(bare, dtype=np.float64)) / per)  # type: ignore[arg-type]


def cost_ratio(
    variant: Sequence[float] | Floats, other: Sequence[float] | Floats, bare: Sequence[float] | Floats
) -> Estimate:
    """Estimate the cost of ``variant`` over that of ``other``; cost is the time beyond ``bare``."""
    base = np.asarray(bare, dtype=np.float64)
    mine, theirs = np.asarray(variant, dtype=np.float64) - base, np.asarray(other, dtype=np.float64) - base

    def statistic(rounds: npt.NDArray[np.int64]) -> Floats:
        denominator = np.median(theirs[rounds], axis=1)
        return np.asarray(np.median(mine[rounds], axis=1) / np.where(denominator > 0, denominator, np.nan))

    return estimate(statistic, len(base))
