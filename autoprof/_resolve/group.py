"""Groups of closed steps with the same marks, which are resolved together as one matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._capture.marks.mark_batch import MarkBatch
from ..frame import NO_GAP, Gap, Nanoseconds
from .raw import RawStep


class StepGroup:
    """Steps in a row of one clock that have the same marks, in columns with one entry a step."""

    def __init__(self, raws: Sequence[RawStep]) -> None:
        self._raws = raws
        self.steps = [raw.step for raw in raws]
        self.overhead_ns = [raw.overhead_ns + raw.mark_batch.detail_ns for raw in raws]
        self.scalars = [raw.scalars for raw in raws]
        self.gap_scalars = [raw.gap_scalars for raw in raws]
        self.memory = [raw.memory for raw in raws]
        self.gaps = [Gap(raw.gap_steps, raw.gap_ns, raw.gap_overhead_ns) if raw.gap_steps else NO_GAP for raw in raws]
        self.kinds = [raw.cut if _is_plain(raw) else None for raw in raws]
        """The cut of each step whose statistics need nothing but these columns and its times, None for others."""

    def __len__(self) -> int:
        return len(self.steps)

    def raws(self, begin: int, end: int) -> Sequence[RawStep]:
        """Return the steps from ``begin`` to ``end``."""
        return self._raws[begin:end]

    def host_readings(self) -> tuple[Nanoseconds, Nanoseconds]:
        """Return the integer readings of each step with its end behind them, and its start.

        Raises ``OverflowError`` for a reading that needs more than 64 bits.
        """
        raws = self._raws
        readings = np.empty((len(raws), raws[0].mark_batch.mark_count + 1), dtype=np.int64)
        readings[:, :-1] = MarkBatch.matrix([raw.mark_batch for raw in raws])
        readings[:, -1] = [raw.end for raw in raws]
        return readings, np.array([raw.start for raw in raws], dtype=np.int64)


def _is_plain(raw: RawStep) -> bool:
    """Return whether statistics need the step's times, scalars and memory readings only."""
    batch = raw.mark_batch
    return not (raw.warmup or batch.dropped or batch.shapes)
