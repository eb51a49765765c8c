"""Columns of statistics, one entry a row, in memory that does not grow with the number of steps.

Everything is integer nanoseconds or bytes. Quantiles come from logarithmic bins (DDSketch, Masson et al. 2019): the
width of a bin is a fixed ratio, which bounds the relative error.
"""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

from ..frame import NOT_MEASURED, Nanoseconds, StepFrame
from .rows import RowKey

BIN_RATIO: Final = 1.02
"""Width of a quantile bin: its middle is within 1 % of every value in it."""
BINS: Final = 1520
"""Bins from 1 ns to beyond 10,000 s at ``BIN_RATIO``."""

_BINS_PER_LOG: Final = 1 / log(BIN_RATIO)
NEVER: Final = int(np.iinfo(np.int64).max)


class Table:
    """Statistics by row: sums in ns, ``calls``, the ``steps`` with the row, and ``bins`` that count its values."""

    def __init__(self, capacity: int = 64) -> None:
        self.index: dict[RowKey, int] = {}
        self.fqns: list[str | None] = []
        self.parents: list[RowKey | None] = []
        self.total, self.self_time, self.host_bound, self.calls, self.steps, self.max = (
            np.zeros(capacity, dtype=np.int64) for _ in range(6)
        )
        self.min: Nanoseconds = np.full(capacity, NEVER, dtype=np.int64)
        self.growth: Nanoseconds = np.full(capacity, -NEVER, dtype=np.int64)
        self.peak: Nanoseconds = np.full(capacity, NOT_MEASURED, dtype=np.int64)
        self.bins: npt.NDArray[np.uint32] = np.zeros((capacity, BINS), dtype=np.uint32)

    def row(self, key: RowKey, fqn: str | None, parent: RowKey | None) -> int:
        """Return the index of this key's row, which is added if it is new."""
        row = self.index.get(key)
        if row is None:
            row = self.index[key] = len(self.index)
            self.fqns.append(fqn)
            self.parents.append(parent)
            if row >= len(self.total):
                self._grow(2 * row)
        return row

    def _grow(self, capacity: int) -> None:
        larger, kept = Table(capacity), len(self.total)
        for name, column in vars(larger).items():
            if isinstance(column, np.ndarray):
                column[:kept] = getattr(self, name)
                setattr(self, name, column)

    def add_steps(self, rows: Nanoseconds, values: Nanoseconds) -> None:
        """Add ``values`` (steps × rows) to these rows."""
        self.total[rows] += values.sum(axis=0)
        self.steps[rows] += len(values)
        self.min[rows] = np.minimum(self.min[rows], values.min(axis=0))
        self.max[rows] = np.maximum(self.max[rows], values.max(axis=0))
        bins = np.minimum(np.log(np.maximum(values, 1)) * _BINS_PER_LOG, BINS - 1).astype(np.int64)
        bins += rows * BINS
        # One flat index and values of one type take the fast path of add.at, which is 30 times faster.
        np.add.at(self.bins.reshape(-1), bins.reshape(-1), np.uint32(1))

    def quantiles_ns(self, *quantiles: float) -> list[Nanoseconds]:
        """Return each quantile of every row, within 1 % and between the row's minimum and maximum."""
        used = len(self.index)
        seen = np.flatnonzero(self.bins[:used].any(axis=0))
        if not len(seen):
            return [np.zeros(used, dtype=np.int64) for _ in quantiles]
        counts = np.cumsum(self.bins[:used, seen], axis=1, dtype=np.int64)
        return [self._quantile_ns(q, counts, seen) for q in quantiles]

    def _quantile_ns(self, q: float, counts: Nanoseconds, seen: Nanoseconds) -> Nanoseconds:
        used = len(counts)
        rank = np.ceil(q * counts[:, -1:]).clip(1)
        position = np.minimum((counts < rank).sum(axis=1), len(seen) - 1)
        middle = BIN_RATIO ** (seen[position] + 0.5)
        low, high = np.minimum(self.min[:used], self.max[:used]), self.max[:used]
        bounded: Nanoseconds = np.minimum(np.maximum(middle.astype(np.int64), low), high)
        return bounded

    def add_memory(self, row_of_span: Nanoseconds, frame: StepFrame) -> None:
        """Add the bytes of a step's spans; ``row_of_span`` has the row of each span, -1 for none."""
        start, end = frame.memory_start_bytes, frame.memory_end_bytes
        assert start is not None
        assert end is not None
        reached = np.maximum(start, end) if frame.memory_peak_bytes is None else frame.memory_peak_bytes
        seen = (reached != NOT_MEASURED) & (row_of_span >= 0)
        np.maximum.at(self.peak, row_of_span[seen], reached[seen])
