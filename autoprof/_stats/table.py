"""Columns of statistics, one entry a row: what has been counted, in memory that does not grow with the steps."""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

from ..frame import NOT_MEASURED, Nanoseconds, StepFrame
from .rows import RowKey

RATIO: Final = 1.02
"""Width of a quantile bin: the middle of a bin is within 1 % of whatever fell into it."""
BINS: Final = 1520
"""Bins from 1 ns to beyond 10,000 s at ``RATIO``."""

_PER_LOG: Final = 1 / log(RATIO)
_ONE: Final = np.uint32(1)
_NEVER: Final = int(np.iinfo(np.int64).max)
UNKNOWN: Final = _NEVER
"""A ceiling above everything: once one step had none, the run has none."""
_SUMS: Final = ("total", "own", "host", "bound", "calls", "occurred", "bins")
_MAXIMA: Final = ("max", "growth", "peak", "ceiling", "reserved")


class Table:
    """Statistics by row. ``total``, ``own`` (self), ``host`` and ``bound`` are sums in ns; ``bins`` count values.

    A row's peak of memory lies between ``peak`` and ``ceiling``; a ceiling that nobody knows is ``UNKNOWN``.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.index: dict[RowKey, int] = {}
        self.fqns: list[str | None] = []
        self.parents: list[RowKey | None] = []
        self.total, self.own, self.host, self.calls, self.occurred, self.max, self.last, self.last_step = (
            np.zeros(capacity, dtype=np.int64) for _ in range(8)
        )
        self.bound: Nanoseconds = np.zeros(capacity, dtype=np.int64)
        self.min: Nanoseconds = np.full(capacity, _NEVER, dtype=np.int64)
        self.growth: Nanoseconds = np.full(capacity, -_NEVER, dtype=np.int64)
        self.peak, self.ceiling, self.reserved = (np.full(capacity, NOT_MEASURED, dtype=np.int64) for _ in range(3))
        self.bins: npt.NDArray[np.uint32] = np.zeros((capacity, BINS), dtype=np.uint32)

    def row(self, key: RowKey, fqn: str | None, parent: RowKey | None) -> int:
        """Return the row of this key, a new one if need be."""
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
        for name in (*_SUMS, *_MAXIMA, "min", "last", "last_step"):
            column = getattr(larger, name)
            column[:kept] = getattr(self, name)
            setattr(self, name, column)

    def count(self, rows: Nanoseconds, values: Nanoseconds, last_step: int) -> None:
        """Count ``values`` (steps × rows), the last of which is that of ``last_step``."""
        self.total[rows] += values.sum(axis=0)
        self.occurred[rows] += len(values)
        self.min[rows] = np.minimum(self.min[rows], values.min(axis=0))
        self.max[rows] = np.maximum(self.max[rows], values.max(axis=0))
        newer = self.last_step[rows] <= last_step
        self.last[rows[newer]] = values[-1][newer]
        self.last_step[rows[newer]] = last_step
        bins = np.minimum(np.log(np.maximum(values, 1)) * _PER_LOG, BINS - 1).astype(np.int64)
        bins += rows * BINS
        np.add.at(self.bins.reshape(-1), bins.reshape(-1), _ONE)  # one flat index, one type: add.at's fast path, 30 x

    def quantiles_ns(self, *quantiles: float) -> list[Nanoseconds]:
        """Return each quantile of every row, within 1 %, never beyond the row's own minimum and maximum."""
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
        middle = RATIO ** (seen[position] + 0.5)
        low, high = np.minimum(self.min[:used], self.max[:used]), self.max[:used]
        bounded: Nanoseconds = np.minimum(np.maximum(middle.astype(np.int64), low), high)
        return bounded

    def remember(self, block_rows: Nanoseconds, frame: StepFrame) -> None:
        """Note the bytes of a step's spans; ``block_rows`` has the row of each span, -1 for none."""
        start, end = frame.memory_start_bytes, frame.memory_end_bytes
        assert start is not None
        assert end is not None
        reached = np.maximum(start, end) if frame.memory_peak_bytes is None else frame.memory_peak_bytes
        seen = (reached != NOT_MEASURED) & (block_rows >= 0)
        of_span = block_rows[seen]
        np.maximum.at(self.peak, of_span, reached[seen])
        if frame.memory_bound_bytes is not None:
            bound = frame.memory_bound_bytes
            np.maximum.at(self.ceiling, of_span, np.where(bound == NOT_MEASURED, UNKNOWN, bound)[seen])
        if frame.memory_reserved_bytes is not None:
            np.maximum.at(self.reserved, of_span, frame.memory_reserved_bytes[seen])

    def merge(self, other: Table, limit: int) -> int:
        """Add another table's rows to this one, new ones up to ``limit`` rows; return how many are beyond it."""
        beyond = 0
        for key, theirs in other.index.items():
            if key not in self.index and len(self.index) >= limit:
                beyond += 1
                continue
            mine = self.row(key, other.fqns[theirs], other.parents[theirs])
            for name in _SUMS:
                getattr(self, name)[mine] += getattr(other, name)[theirs]
            for name in _MAXIMA:
                getattr(self, name)[mine] = max(getattr(self, name)[mine], getattr(other, name)[theirs])
            self.min[mine] = min(self.min[mine], other.min[theirs])
            if other.occurred[theirs] and other.last_step[theirs] >= self.last_step[mine]:
                self.last[mine], self.last_step[mine] = other.last[theirs], other.last_step[theirs]
        return beyond
