"""One closed step as it was recorded: marks without their meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .._capture.marks import codes as marks
from .._capture.marks.mark_batch import MarkBatch
from ..devices import Clock, Reading
from ..frame import TRAINING_LANE

NO_MARKS: Final = MarkBatch([], [], 0, False, 0)
_NOTHING: Final[Mapping[str, Any]] = {}

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

    @property
    def begun_ns(self) -> int:
        """The host's time at the start."""
        return self.clock.host_ns(self.start)

    @property
    def ended_ns(self) -> int:
        """The host's time at the end."""
        return self.clock.host_ns(self.end)

    def lanes(self) -> tuple[int, ...] | None:
        """Return the lane of each mark, or None where every mark is the training thread's.

        The training thread has lane 0, and with it the one thread that runs its backward; others have their own. Of
        several devices each has a thread that runs a part of it: the one of the step's own device belongs to lane 0.
        """
        batch = self.mark_batch
        if not batch.multithreaded:
            return None
        codes, threads, thread = batch.codes, [], batch.thread
        for code, reading in zip(codes, batch.readings, strict=True):
            if code == marks.THREAD:
                thread = reading
                threads.append(thread)
            else:
                threads.append(thread)
                thread = batch.thread
        kinds: dict[int, set[int]] = {}
        for thread, code in zip(threads, codes, strict=True):
            kinds.setdefault(thread, set()).add(code & marks.KIND_MASK)
        workers = [thread for thread in kinds if thread != batch.thread and not _OTHER_WORK & kinds[thread]]
        worker = workers[0] if len(workers) == 1 else self._at_home(workers, threads)
        lane_of = dict.fromkeys((batch.thread,) if worker is None else (batch.thread, worker), TRAINING_LANE)
        for thread in kinds:
            if thread not in lane_of:
                lane_of[thread] = len(lane_of)
        return tuple(lane_of[thread] for thread in threads)

    def _at_home(self, workers: list[int], threads: list[int]) -> int | None:
        """Return the first of these threads that made a mark on the step's device, or else the first."""
        home = getattr(self.start, "place", None)
        for thread, reading in zip(threads, self.mark_batch.readings, strict=True):
            place = getattr(reading, "place", None)
            if thread in workers and home is not None and place is not None and place[0] == home[0]:
                return thread
        return next(iter(workers), None)

    def readings(self) -> list[Reading]:
        """Return all readings of the clock in the step, its start first and its end last."""
        inside = [
            reading
            for code, reading in zip(self.mark_batch.codes, self.mark_batch.readings, strict=True)
            if code & marks.KIND_MASK not in marks.VALUE_KINDS
        ]
        return [self.start, *inside, self.end]
