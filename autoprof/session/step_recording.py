"""The recorded step: open it with the probes of its targets, pause it, and close it as a ``RawStep``."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import get_ident
from time import time_ns
from typing import Any, Final

from ..base.failures import contain, ignore
from ..base.frame import Phase
from ..base.notes import Notes
from ..capture.marks.codes import INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE
from ..capture.recorder import Recorder
from ..devices import Clock, Memory, Reading
from ..resolve import RawStep
from .controller import RecordedRows
from .open_gap import OpenGap
from .session_probes import SessionProbes
from .step_cost import StepCost

MAX_TAIL: Final = 1.5
"""Times as long as the step before that the last step of a loop may be and still last until the end of the session."""


@dataclass(slots=True)
class OpenStep:
    """A step that is being recorded, and the unsampled ones before it."""

    start: Reading
    begun_ns: int | None
    """The host time of ``start`` where it is known: that of the end of the step before."""
    start_unix_ns: int
    instrumented: frozenset[str]
    cut: int
    warmup: bool
    asked: bool
    """Whether the step has work that the user has asked for, such as a deep capture: its cost says nothing."""
    gap: OpenGap
    scalars: dict[str, Any] = field(default_factory=dict)


class StepRecording:
    """Record one step after the other, on the clock of the device that the model is on.

    The first ``warmup`` steps are in no statistic.
    """

    def __init__(
        self,
        recorder: Recorder,
        memory: Memory,
        probes: SessionProbes,
        rows: RecordedRows,
        cost: StepCost,
        notes: Notes,
        *,
        warmup: int,
    ) -> None:
        self.recorder = recorder
        self.memory = memory
        self.probes = probes
        probes.use(rows.chosen)
        self._rows = rows
        self._cost = cost
        self._notes = notes
        self._warmup = warmup
        self.open: OpenStep | None = None
        """The step being recorded; None while an unsampled step is open, or none."""
        self.length_ns = self.ended_ns = 0
        """The length of the last recorded step, and its end."""
        self.moved = False
        """Whether a module moved to another device in the step that ended last."""
        self._end_unix_ns = 0
        """The wall-clock time at which the last recorded step ended."""

    @property
    def clock(self) -> Clock:
        """The clock that is read now."""
        return self.recorder.clock

    def mark(self, code: int) -> int:
        """Append a mark, if a step is being recorded; return the host time in ns."""
        clock = self.recorder.clock
        if self.open is None:
            return clock.now()
        reading = clock.read()
        self.recorder.append(code, reading, get_ident())
        return clock.host_ns(reading)

    # Open.

    def follow_device(self, start: Reading, *, is_end: bool) -> Reading:
        """Read the clock of the device that the model has moved to, if it has; return ``start`` on that clock."""
        placement = self.probes.placement
        if not (self.moved if is_end else placement.moved()):
            return start
        before, index = self.clock, self.clock.device_index
        note = placement.follow()
        if note is not None:
            self._notes.warn_once(note)
        self._end_unix_ns = time_ns()
        clock = self.clock
        if clock is before and clock.device_index == index:
            return start
        self.probes.renew()
        if clock is before and clock.device_index is not None:
            self.memory = self.memory.on(clock.device_index)
        if start is not None and not is_end:  # the end of a closed step stays with it
            before.release((start,))
        return None if start is None else clock.read()

    def begin(
        self,
        number: int,
        start: Reading,
        gap: OpenGap,
        *,
        begun_ns: int | None,
        warmup: bool,
        asked: bool,
        paused: bool,
    ) -> OpenStep:
        """Open a step that records the present rows at the reading ``start``; None: now, once probes are attached."""
        if self._rows.chosen is not self.probes.set:
            self.probes.use(self._rows.chosen)
        if self.recorder.buffer.suspended:
            self.recorder.resume()
        probes, is_warmup = self.probes, warmup or asked or number <= self._warmup
        self.open = opened = OpenStep(
            start, begun_ns, self._end_unix_ns or time_ns(), probes.fqns, probes.set.number, is_warmup, asked, gap
        )
        if not (paused or probes.are_on):
            probes.switch(True)
        if start is None:
            opened.start, opened.start_unix_ns = self.clock.read(), time_ns()
        return opened

    def suspend(self) -> None:
        """Record no step from now on, until the next one begins."""
        self.open = None
        self.probes.switch(False)
        self.recorder.suspend()

    # Close.

    def close(
        self,
        opened: OpenStep,
        number: int,
        excluded_ns: int,
        *,
        steps_in_one: int = 1,
        until: int | None = None,
    ) -> RawStep:
        """Close the recorded step; it ends now, or with the last mark before ``until``.

        Of several steps in one, all of equal length, the last one is recorded, as a warm-up step.
        """
        recorder, placement = self.recorder, self.probes.placement
        clock = recorder.clock
        if until is None:
            end, self._end_unix_ns = clock.read(), time_ns()
        else:
            end = recorder.buffer[until - 1]
        begun_ns = clock.host_ns(opened.start) if opened.begun_ns is None else opened.begun_ns
        self.ended_ns = clock.host_ns(end)
        self.length_ns = max(self.ended_ns - begun_ns - excluded_ns, 0)
        gap, others = opened.gap, steps_in_one - 1
        serial = recorder.buffer.serial
        mark_batch = recorder.take() if until is None else recorder.take().up_to(until // 2)
        self.moved = placement.moved()
        memory = self.memory.at_step_end() if self.memory.now_ns() >= self.memory.due_ns else {}
        overhead_ns = self._cost.charge()
        return RawStep(
            number,
            opened.start_unix_ns,
            serial,
            clock,
            opened.start,
            end,
            mark_batch,
            opened.scalars,
            memory,
            overhead_ns,
            # The device times of a step in which the model moved are those of the device that it left.
            warmup=opened.warmup or others > 0 or (self.moved and placement.has_left()),
            gap_steps=gap.steps + others,
            gap_ns=gap.ns + self.length_ns * others // steps_in_one,
            gap_overhead_ns=gap.overhead_ns,
            instrumented=opened.instrumented,
            cut=opened.cut,
            gap_scalars=gap.scalars,
            begun_ns=begun_ns,
            ended_ns=self.ended_ns,
        )

    def end_of_loop(self, opened: OpenStep, updated_at: int | None, excluded_ns: int, last_ns: int) -> int | None:
        """Return the position behind the update; None where the step goes on until now.

        No event ends the last step of a loop: it ends with its update if more time has passed since than before it,
        and the step would be longer than the one before, which took ``last_ns``. Excluded time does not count.
        """
        buffer, clock = self.recorder.buffer, self.clock
        if updated_at is None:
            updated_at = len(buffer)
        if updated_at + 1 < len(buffer) and buffer[updated_at] & KIND_MASK == LEAVE:
            label = self.recorder.labels[buffer[updated_at] >> KIND_BITS & INDEX_MASK]
            updated_at += 2 if label.phase is Phase.OPTIMIZER else 0  # its span ends after the hooks
        if not updated_at:
            return None
        updated_ns = clock.host_ns(buffer[updated_at - 1])
        before_ns = updated_ns - clock.host_ns(opened.start)
        since_ns = clock.now() - updated_ns - excluded_ns
        is_longer = before_ns + since_ns > MAX_TAIL * last_ns
        return updated_at if since_ns > before_ns and is_longer else None

    def detach(self) -> None:
        """Record nothing any more, and detach all probes, whatever fails."""
        self.open = None
        with contain(ignore):
            self.probes.detach_all()
        with contain(ignore):
            self.recorder.stop()
