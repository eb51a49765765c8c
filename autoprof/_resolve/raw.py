"""One closed step as it was recorded, before anybody knows what its marks mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import torch

from .._capture import marks
from .._capture.marks import MarkBatch
from ..devices import Clock, Reading
from ..frame import TRAINING_LANE

NO_MARKS: Final = MarkBatch([], [], 0, False, 0)

_BESIDE: Final = frozenset({marks.ENTER, marks.RESUME, marks.LOGGED})
"""Kinds of marks that show a thread to work on its own, not for the training thread's backward pass."""


@dataclass(slots=True)
class RawStep:
    """Marks, the readings around them, and what is known of the step otherwise."""

    step: int
    start_unix_ns: int
    serial: int
    clock: Clock
    start: Reading
    end: Reading = None
    taken: MarkBatch = NO_MARKS
    scalars: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    overhead_ns: int = 0
    warmup: bool = False
    settles: bool = False
    """One of the first steps after a gap: to readings that go on a step like any other, to statistics a warm-up."""
    gap_steps: int = 0
    gap_ns: int = 0
    alone: bool = False
    resolved: bool = False

    def log(self, name: str, value: Any) -> None:
        """Note a number, or a tensor of one element; a device's is copied without waiting and read when resolved.

        Raises ``TypeError`` or ``ValueError`` for anything else.
        """
        if not isinstance(value, torch.Tensor):
            self.scalars[name] = float(value)
        elif value.numel() != 1:
            raise ValueError(f"it has {value.numel()} elements")
        elif value.device.type == "cpu":
            self.scalars[name] = float(value.detach())
        else:
            self.scalars[name] = value.detach().to("cpu", non_blocking=True)

    def leave_alone(self) -> None:
        """Take word that no step begins at the end of this one, whose reading goes back when the others do."""
        self.alone = True
        if self.resolved:
            self.clock.release((self.end,))

    def release(self, readings: list[Reading]) -> None:
        """Give the step's readings back, less the end where the next step begins with it."""
        self.clock.release(readings if self.alone else readings[:-1])
        self.resolved = True

    def lanes(self) -> tuple[int, ...] | None:
        """Return the lane of each mark, or None where every mark is the training thread's.

        The training thread has lane 0, and with it the one thread that runs its backward; others have their own. Of
        several devices each has a thread that runs a part of it: the one of the step's own device belongs to lane 0.
        """
        taken = self.taken
        if not taken.multithreaded:
            return None
        codes, threads, thread = taken.codes, [], taken.thread
        for code, reading in zip(codes, taken.readings, strict=True):
            if code == marks.THREAD:
                thread = reading
                threads.append(thread)
            else:
                threads.append(thread)
                thread = taken.thread
        kinds: dict[int, set[int]] = {}
        for thread, code in zip(threads, codes, strict=True):
            kinds.setdefault(thread, set()).add(code & marks.KIND_MASK)
        workers = [thread for thread in kinds if thread != taken.thread and not _BESIDE & kinds[thread]]
        worker = workers[0] if len(workers) == 1 else self._at_home(workers, threads)
        lane_of = dict.fromkeys((taken.thread,) if worker is None else (taken.thread, worker), TRAINING_LANE)
        for thread in kinds:
            if thread not in lane_of:
                lane_of[thread] = len(lane_of)
        return tuple(lane_of[thread] for thread in threads)

    def _at_home(self, workers: list[int], threads: list[int]) -> int | None:
        """Return the first of these threads that made a mark on the step's device, or else the first."""
        home = getattr(self.start, "place", None)
        for thread, reading in zip(threads, self.taken.readings, strict=True):
            place = getattr(reading, "place", None)
            if thread in workers and home is not None and place is not None and place[0] == home[0]:
                return thread
        return next(iter(workers), None)

    def readings(self) -> list[Reading]:
        """Return all readings of the clock in the step, its start first and its end last."""
        inside = [
            reading
            for code, reading in zip(self.taken.codes, self.taken.readings, strict=True)
            if code & marks.KIND_MASK not in marks.VALUE_KINDS
        ]
        return [self.start, *inside, self.end]
