"""Memory read at the ends of spans → bytes at each span's start and end, and a lower bound of its peak.

An allocator has one running peak, and resetting it would change the user's own readings, so autoprof never resets it.
Where the running peak grew within a span, it was the span's own peak. Elsewhere the span stayed below the running peak,
and reached at least the levels read at its ends and at the ends of the spans inside it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ..base.frame import NOT_MEASURED, Layout, Nanoseconds


class MemoryColumns(NamedTuple):
    """One step's columns of bytes, as in ``StepFrame``; None where no span has such a value."""

    memory_start_bytes: Nanoseconds | None = None
    memory_end_bytes: Nanoseconds | None = None
    memory_peak_bytes: Nanoseconds | None = None

    def only(self, spans: Nanoseconds) -> MemoryColumns:
        """Return the columns of these spans."""
        return MemoryColumns(*(None if column is None else column[spans] for column in self))


NO_MEMORY: Final = MemoryColumns()


def memory_columns(positions: Nanoseconds, layout: Layout, values: Nanoseconds) -> list[MemoryColumns]:
    """Return the columns of each step; ``positions`` is ``Plan.memory``, ``values`` (steps × marks) the values."""
    found = np.where(positions == NOT_MEASURED, NOT_MEASURED, values[:, positions])
    columns = []
    for start, peak_before, end, peak_after in found:
        grew = (peak_before != NOT_MEASURED) & (peak_after > peak_before)
        lower = np.maximum(np.maximum(start, end), np.where(grew, peak_after, NOT_MEASURED))
        columns.append(MemoryColumns(start, end, _with_children(lower, layout)))
    return columns


def _with_children(reached: Nanoseconds, layout: Layout) -> Nanoseconds:
    """Raise each span to the highest level of its children, also where the span itself was not measured."""
    levels = reached.tolist()
    for span in range(len(levels) - 1, -1, -1):  # parents come first
        parent = layout.parents[span]
        if parent >= 0 and levels[span] > levels[parent]:
            levels[parent] = levels[span]
    return np.array(levels, dtype=np.int64)
