"""Choose the steps that are compared, and the ranks that have recorded them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from .._stats.median import median
from ..frame import Nanoseconds
from .comparison import MIN_COMMON_STEPS
from .left_out import LeftOut

FEW: Final = 4
"""A rank with less than this part of the usual number of steps is left out: all others would be compared by so few."""


def choose_steps(steps: Mapping[int, Nanoseconds]) -> tuple[Nanoseconds, list[LeftOut]]:
    """Return the steps that all used ranks have recorded, and the ranks that are left out.

    Where the ranks have too few steps in common, the rank that shares the fewest with most others is left out first.
    """
    left_out, used = _without_short_ones(steps)
    numbers, counts = _count(used)
    while len(used) > 2 and (counts == len(used)).sum() < MIN_COMMON_STEPS:
        usual = numbers[2 * counts > len(used)]
        shared = {rank: len(np.intersect1d(own, usual, assume_unique=True)) for rank, own in used.items()}
        rank = min(shared, key=lambda rank: (shared[rank], -rank))
        left_out.append(LeftOut.of_rank(rank, f"recorded other steps: {shared[rank]} in common with most ranks"))
        counts -= np.isin(numbers, used.pop(rank), assume_unique=True)
    return numbers[counts == len(used)], left_out


def _without_short_ones(steps: Mapping[int, Nanoseconds]) -> tuple[list[LeftOut], dict[int, Nanoseconds]]:
    usual = round(float(median([len(own) for own in steps.values()]))) if steps else 0
    short = {rank: len(own) for rank, own in steps.items() if FEW * len(own) < usual}
    left_out = [
        LeftOut.of_rank(rank, f"recorded {count:,} steps, most ranks {usual:,}") for rank, count in short.items()
    ]
    return left_out, {rank: own for rank, own in steps.items() if rank not in short}


def _count(steps: Mapping[int, Nanoseconds]) -> tuple[Nanoseconds, Nanoseconds]:
    """Return all steps with the number of ranks that recorded each."""
    if not steps:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    numbers, counts = np.unique(np.concatenate(list(steps.values())), return_counts=True)
    return numbers, counts.astype(np.int64)
