"""The median of the other ranks' times."""

from __future__ import annotations

import numpy as np
import pytest

from autoprof._ranks import median_of_others


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("columns", [(), (6,)])
def test_each_rank_has_the_median_of_the_ranks_but_itself(ranks: int, columns: tuple[int, ...]) -> None:
    """The result is numpy's median without the rank's own times, also where times are equal."""
    times = np.random.default_rng(ranks).integers(0, 5, size=(ranks, *columns)).astype(float)
    expected = np.stack([np.median(np.delete(times, rank, axis=0), axis=0) for rank in range(ranks)])
    assert (median_of_others(times) == expected).all()
