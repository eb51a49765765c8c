"""The median, without ``np.median``: that imports ``numpy.ma`` at its first call, milliseconds of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def median(values: npt.ArrayLike, axis: int | None = None) -> Any:
    """Return the median of values without NaN as ``np.median`` does, over all of them or along an axis."""
    array = np.asarray(values)
    flat, at = (array.ravel(), 0) if axis is None else (array, axis)
    ordered, count = np.sort(flat, axis=at), flat.shape[at]
    return (ordered.take((count - 1) // 2, axis=at) + ordered.take(count // 2, axis=at)) / 2
