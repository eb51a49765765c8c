"""Memory at the ends of spans → what each span began and ended with, and between which bounds its peak lies.

An allocator keeps one running peak, and to reset it would change what the user reads. So nothing is reset: where the
running peak grew within a span, it was the span's own peak; elsewhere the span stayed below the running peak, and
reached at least what was read at its ends and at those of the spans in it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ..frame import NOT_MEASURED, Layout, Nanoseconds


class MemoryColumns(NamedTuple):
    """One step's columns of bytes, as in ``StepFrame``; None where no span has such a value."""

    memory_start_bytes: Nanoseconds | None = None
    memory_end_bytes: Nanoseconds | None = None
    memory_peak_bytes: Nanoseconds | None = None
    memory_bound_bytes: Nanoseconds | None = None
    memory_reserved_bytes: Nanoseconds | None = None


NO_MEMORY: Final = MemoryColumns()


def memory_columns(positions: Nanoseconds, layout: Layout, values: Nanoseconds) -> list[MemoryColumns]:
    """Return the columns of each step; ``positions`` is a plan's ``memory``, ``values`` (steps × marks) the values."""
    found = np.where(positions == NOT_MEASURED, NOT_MEASURED, values[:, positions])
    tells_peak, tells_reserved = ((positions[row] != NOT_MEASURED).any() for row in (1, 2))
    columns = []
    for start, peak_before, reserved_before, end, peak_after, reserved_after in found:
        lower = np.maximum(start, end)
        bound = reserved = None
        if tells_peak:
            known = (peak_before != NOT_MEASURED) & (peak_after != NOT_MEASURED)
            grew = known & (peak_after > peak_before)
            lower = np.where(grew, np.maximum(lower, peak_after), lower)
            # A running peak that is lower than before was reset inside: how high it had been, nobody knows.
            bound = np.where(known & (peak_after >= peak_before), peak_after, NOT_MEASURED)
        if tells_reserved:
            reserved = np.maximum(reserved_before, reserved_after)
        columns.append(MemoryColumns(start, end, _with_children(lower, layout), bound, reserved))
    return columns


def _with_children(reached: Nanoseconds, layout: Layout) -> Nanoseconds:
    """Let a span reach what those in it reached, also one that was not measured itself."""
    levels = reached.tolist()
    for span in range(len(levels) - 1, -1, -1):  # parents come first
        parent = layout.parents[span]
        if parent >= 0 and levels[span] > levels[parent]:
            levels[parent] = levels[span]
    return np.array(levels, dtype=np.int64)
