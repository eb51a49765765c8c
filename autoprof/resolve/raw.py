"""One closed step as it was recorded: marks without their meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..base.frame import TRAINING_LANE
from ..capture.marks import codes as marks
from ..capture.marks.mark_batch import MarkBatch
from ..devices import Clock, Reading

NO_MARKS: Final = MarkBatch(b"", b"", 0, False, 0)
_NOTHING: Final[Mapping[str, Any]] = {}

_IS_TIME: Final = np.array([kind not in marks.VALUE_KINDS for kind in range(marks.KIND_MASK + 1)])
"""For each kind of a mark, whether its reading is one of the clock."""
_OTHER_WORK: Final = frozenset({marks.ENTER, marks.RESUME, marks.LOGGED})
"""Kinds of marks of a thread that works on its own, not for the training thread's backward pass."""


class RawStep(NamedTuple):
    """A step's marks, the readings around them, and all else that is known of it when it closes."""

    step: int
    start_unix_ns: int
    serial: int
    clock: Clock
    start: Reading
    end: Reading = None
    mark_batch: MarkBatch = NO_MARKS
    scalars: Mapping[str, Any] = _NOTHING
    memory: Mapping[str, int] = _NOTHING
    overhead_ns: int = 0
    warmup: bool = False
    gap_steps: int = 0
    gap_ns: int = 0
    gap_overhead_ns: int = 0
    """Autoprof's own work where the gap before this step began, and where it ended: it is in no step."""
    instrumented: frozenset[str] = frozenset()
    """The fqns of the modules that were recorded when called."""
    cut: int = 0
    """The number of the set of targets with which the step was recorded."""
    gap_scalars: Mapping[str, Sequence[Any]] = _NOTHING
    """The units logged in the gap before this step: numbers, and tensors to be read later."""
    begun_ns: int = 0
    """The host's time at the start."""
    ended_ns: int = 0
    """The host's time at the end."""

    def lanes(self) -> tuple[int, ...] | None:
        """Return the lane of each mark, or None where every mark is the training thread's.

        The training thread has lane 0, and with it the first thread that works for its backward; others have their own.
        """
        batch = self.mark_batch
        if not batch.multithreaded:
            return None
        codes, readings = batch.code_array, batch.readings
        threads = np.full(len(codes) + 1, batch.thread, dtype=np.int64)
        names_thread = codes == marks.THREAD
        named = np.flatnonzero(names_thread)
        threads[named] = threads[named + 1] = _chosen(readings, names_thread)
        threads = threads[:-1]
        kinds = {
            thread: set((codes[threads == thread] & marks.KIND_MASK).tolist())
            for thread in dict.fromkeys(threads.tolist())
        }
        workers = [thread for thread in kinds if thread != batch.thread and not _OTHER_WORK & kinds[thread]]
        lane_of = dict.fromkeys((batch.thread, *workers[:1]), TRAINING_LANE)
        for thread in kinds:
            if thread not in lane_of:
                lane_of[thread] = len(lane_of)
        return tuple(map(lane_of.__getitem__, threads.tolist()))

    def readings(self) -> list[Reading]:
        """Return all readings of the clock in the step, its start first and its end last."""
        kinds = self.mark_batch.code_array & marks.KIND_MASK
        return [self.start, *_chosen(self.mark_batch.readings, _IS_TIME[kinds]), self.end]


def _chosen(readings: Sequence[Any], is_chosen: npt.NDArray[np.bool_]) -> list[Any]:
    """Return some of the readings. Raises ``ValueError`` where marks lack readings."""
    return [reading for chosen, reading in zip(is_chosen.tolist(), readings, strict=True) if chosen]
