"""The median without masked arrays is that of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from autoprof._stats.median import median


@pytest.mark.parametrize("shape", [(1,), (2,), (5,), (6,), (3, 4), (4, 7)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_it_is_the_median_of_numpy(shape: tuple[int, ...], axis: int | None) -> None:
    """Of whole numbers and of others, to the last bit."""
    draw = np.random.default_rng(0)
    for values in (draw.integers(-100, 10**15, shape), draw.normal(size=shape)):
        np.testing.assert_array_equal(median(values, axis), np.median(values, axis))
        assert np.asarray(median(values, axis)).dtype == np.float64
