"""The median of the other ranks' times, with which a rank's own time is compared."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def median_of_others(times: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return for each rank the median of the other ranks' times, in each column.

    ``times`` has one row for each of at least two ranks. Unlike a mean, the median ignores another slow rank.
    """
    values = np.asarray(times, dtype=np.float64)
    order = np.argsort(values, axis=0, kind="stable")
    place = np.argsort(order, axis=0, kind="stable")
    ascending = np.take_along_axis(values, order, axis=0)
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2  # the middle places among the others
    lower = np.where(place <= low, ascending[low + 1], ascending[low])
    upper = np.where(place <= high, ascending[high + 1], ascending[high])
    middle: npt.NDArray[np.float64] = (lower + upper) / 2
    return middle
