"""Open, pause and close the steps of a run: a recorded step becomes a ``RawStep``, an unsampled one is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import get_ident
from time import time_ns
from typing import Any, Protocol

import torch

from .._capture.hooks.placement import Placement
from .._capture.marks.codes import (
    ENTER,
    INDEX_MASK,
    KIND_BITS,
    KIND_MASK,
    LEAVE,
    PAUSE,
    THREAD,
    UNPAUSE,
)
from .._capture.recorder import Recorder
from .._core.notes import Notes
from .._core.units import UNITS
from .._resolve import RawStep
from ..devices import Clock, DeviceClock, Memory, Reading
from ..frame import NO_GAP, Gap, Phase
from .events import OutermostModuleCall


class CostMeter(Protocol):
    """A part whose own work in the step is counted while it is done."""

    spent_ns: int
    """Nanoseconds since this was last set to 0."""


def as_scalar(value: Any) -> Any:
    """Return a number, or a tensor of one element that is copied from its device without waiting, and read later.

    Raises ``TypeError`` or ``ValueError`` for anything else.
    """
    if not isinstance(value, torch.Tensor):
        return float(value)
    if value.numel() != 1:
        raise ValueError(f"it has {value.numel()} elements")
    return float(value.detach()) if value.device.type == "cpu" else value.detach().to("cpu", non_blocking=True)


class _Gap:
    """The unsampled steps since the last recorded one."""

    def __init__(self) -> None:
        self.steps = self.ns = self.overhead_ns = 0
        self.scalars: dict[str, list[Any]] = {}


@dataclass(slots=True)
class OpenStep:
    """A step that is being recorded, and the unsampled ones before it."""

    start: Reading
    start_unix_ns: int
    instrumented: frozenset[str]
    cut: int
    warmup: bool
    gap: _Gap
    scalars: dict[str, Any] = field(default_factory=dict)


class StepRecorder:
    """Record the steps of one session, on the training thread. It decides nothing."""

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        memory: Memory,
        notes: Notes,
        placement: Placement,
        cost_meters: Sequence[CostMeter],
    ) -> None:
        self.clock = clock
        self.open: OpenStep | None = None
        """The step being recorded; None while an unsampled step is open, or none."""
        self.number = 0
        """The number of the open step, recorded or not."""
        self.work_ns = 0
        """Processor time of autoprof's own work at the ends of steps so far."""
        self.metered_ns = 0
        """The time of the cost meters so far, with that of shapes, which the recorder adds up."""
        self.last_ns = 0
        """The length of the last step."""
        self._recorder = recorder
        self._memory = memory
        self._notes = notes
        self._placement = placement
        self._cost_meters = tuple(cost_meters)
        self._moved = False
        self.pauses = 0
        """The open pauses, one inside the other."""
        self._paused_at_ns = self._excluded_ns = 0
        """The begin of the open pause; the excluded time of the open step."""
        self._began_ns = self._ended_ns = 0
        """The begin of the open unsampled step, and the end of the step before it."""
        self._end_unix_ns = 0
        """The wall-clock time at which the last recorded step ended."""
        self._gap = _Gap()
        self._charged_ns = 0

    @property
    def ended(self) -> int:
        """The number of steps that have ended, recorded or not."""
        return max(self.number - 1, 0)

    def now_ns(self) -> int:
        """Return the host time on the session's clock."""
        clock = self.clock
        return clock.now() if isinstance(clock, DeviceClock) else int(clock.read())

    # The marks of the open step.

    @property
    def position(self) -> int:
        """The position of the next mark."""
        return len(self._recorder.buffer)

    def calls_since(self, start: int) -> tuple[OutermostModuleCall, ...]:
        """Return the outermost calls of modules that the training thread made since this position."""
        buffer, labels = self._recorder.buffer, self._recorder.labels
        calls: list[OutermostModuleCall] = []
        inside, paused = -1, False
        for at in range(start, len(buffer), 2):
            code = buffer[at]
            kind = code & KIND_MASK
            if kind in (PAUSE, UNPAUSE):
                paused = kind == PAUSE
            if paused or kind not in (ENTER, LEAVE) or (at and buffer[at - 2] & KIND_MASK == THREAD):
                continue
            if inside < 0 and kind == ENTER and (fqn := labels[code >> KIND_BITS & INDEX_MASK].fqn) is not None:
                calls.append(OutermostModuleCall(at, fqn))
                inside = code & ~KIND_MASK
            elif kind == LEAVE and code & ~KIND_MASK == inside:
                inside = -1
        return tuple(calls)

    # Open.

    def follow_device(self, start: Reading, *, is_end: bool = False) -> Reading:
        """Read the clock of the device that the model has moved to, if it has; return ``start`` on that clock.

        ``is_end``: that reading is the end of a closed step, which keeps it.
        """
        placement = self._placement
        if not (self._moved if is_end else placement.moved()):
            return start
        before, index = self.clock, self.clock.device_index
        note = placement.follow()
        if note is not None:
            self._notes.warn_once(note)
        self.clock = clock = self._recorder.clock
        self._end_unix_ns = time_ns()
        if clock is before and clock.device_index == index:
            return start
        if start is not None and not is_end:
            before.release((start,))
        if clock is before and clock.device_index is not None:
            self._memory = self._memory.on(clock.device_index)
        return None if start is None else clock.read()

    def begin(
        self,
        start: Reading,
        instrumented: frozenset[str] = frozenset(),
        cut: int = 0,
        *,
        warmup: bool = False,
    ) -> None:
        """Open a recorded step at the reading ``start``; None: ``started`` reads it once all is attached."""
        if self._recorder.suspended:
            self._recorder.resume()
        self.open = OpenStep(start, self._end_unix_ns or time_ns(), instrumented, cut, warmup, self._gap)
        self._gap = _Gap()
        self._excluded_ns = 0

    def started(self) -> None:
        """Called once all is attached."""
        opened = self.open
        if opened is not None and opened.start is None:
            opened.start, opened.start_unix_ns = self.clock.read(), time_ns()
            opened.gap.overhead_ns += max(self.clock.host_ns(opened.start) - self._ended_ns, 0)

    def begin_unsampled(self) -> None:
        """Open an unsampled step, which begins now."""
        if self.open is not None or not self._recorder.suspended:
            self.open = None
            self._recorder.suspend()
        self._began_ns, self._excluded_ns = self.now_ns(), 0
        self._gap.overhead_ns += max(self._began_ns - self._ended_ns, 0)

    def go_on_unsampled(self, held: int, now_ns: int | None = None) -> None:
        """Close the open unsampled step now, or at the time given, and open another one: each statement here costs."""
        now_ns = self._close_unsampled(held, now_ns=now_ns)
        self.number += 1
        self._began_ns, self._excluded_ns = now_ns, 0

    def log(self, name: str, value: Any) -> None:
        """Attach a scalar to the open step; of an unsampled step only the units of work are kept.

        Raises ``TypeError`` or ``ValueError`` where it is no number.
        """
        if self.open is not None:
            self.open.scalars[name] = as_scalar(value)
        elif name in UNITS:
            held, scalar = self._gap.scalars.setdefault(name, []), as_scalar(value)
            if held and type(held[-1]) is type(scalar) is float:
                held[-1] += scalar
            else:
                held.append(scalar)

    # Close.

    def close(self, held: int = 1, *, until: int | None = None) -> RawStep | None:
        """Close the open step, which held so many; return it if it was recorded.

        It ends now, or with the last mark before the position ``until``.
        """
        if self.open is None:
            self._close_unsampled(held)
            return None
        if until is None:
            end, self._end_unix_ns = self.clock.read(), time_ns()
        else:
            end = self._recorder.buffer[until - 1]
        if held > 1:
            self._divide(self.open, end, held)
        raw = self._raw_step(self.open, end, until)
        self._ended_ns = self.clock.host_ns(end)
        self.last_ns = self._ended_ns - self.clock.host_ns(raw.start)
        return raw

    def _divide(self, opened: OpenStep, end: Reading, held: int) -> None:
        """Count the open step as several of equal length, of which the last one is a warm-up step."""
        length_ns = self.clock.host_ns(end) - self.clock.host_ns(opened.start)
        self.number += held - 1
        opened.warmup = True
        opened.gap.steps += held - 1
        opened.gap.ns += length_ns * (held - 1) // held

    def _close_unsampled(self, held: int, most_ns: int | None = None, now_ns: int | None = None) -> int:
        if now_ns is None:
            now_ns = self.now_ns()
        if self.pauses:  # the rest of the pause lies in the next step
            self._excluded_ns += now_ns - self._paused_at_ns
            self._paused_at_ns = now_ns
        length_ns = max(now_ns - self._began_ns - self._excluded_ns, 0)
        if most_ns is not None:
            length_ns = min(length_ns, most_ns)
        self.last_ns = length_ns // held
        self._gap.steps += held
        self._gap.ns += length_ns
        self._ended_ns = now_ns
        self.number += held - 1
        return now_ns

    def _raw_step(self, opened: OpenStep, end: Reading, until: int | None) -> RawStep:
        recorder, placement = self._recorder, self._placement
        serial = recorder.serial
        mark_batch = recorder.take() if until is None else recorder.take().up_to(until // 2)
        self._moved = placement.moved()
        memory = self._memory.at_step_end()
        overhead_ns, self._charged_ns = self.work_ns - self._charged_ns, self.work_ns
        for meter in self._cost_meters:
            if meter.spent_ns:
                overhead_ns += meter.spent_ns
                self.metered_ns += meter.spent_ns
                meter.spent_ns = 0
        self.metered_ns += mark_batch.detail_ns
        gap = opened.gap
        return RawStep(
            self.number,
            opened.start_unix_ns,
            serial,
            self.clock,
            opened.start,
            end,
            mark_batch,
            opened.scalars,
            memory,
            overhead_ns,
            # The device times of a step in which the model moved are those of the device that it left.
            warmup=opened.warmup or (self._moved and placement.has_left()),
            gap_steps=gap.steps,
            gap_ns=gap.ns,
            gap_overhead_ns=gap.overhead_ns,
            instrumented=opened.instrumented,
            cut=opened.cut,
            gap_scalars=gap.scalars,
        )

    # Excluded time.

    def pause(self) -> int:
        """Record nothing from now on; return the host time in ns."""
        self.pauses += 1
        reading = self.clock.read()
        began_ns = self.clock.host_ns(reading)
        self._mark(PAUSE, reading, counts=self.pauses == 1)
        if self.pauses == 1:
            self._paused_at_ns = began_ns
        return began_ns

    def resume(self) -> int:
        """End a pause; return the host time in ns."""
        self.pauses -= 1
        reading = self.clock.read()
        now_ns = self.clock.host_ns(reading)
        self._mark(UNPAUSE, reading, counts=not self.pauses)
        if not self.pauses:
            self._excluded_ns += now_ns - self._paused_at_ns
        return now_ns

    def _mark(self, code: int, reading: Reading, *, counts: bool) -> None:
        """Append a mark where it counts, or give the reading back."""
        if counts and self.open is not None:
            self._recorder.append(code, reading, get_ident())
        else:
            self.clock.release((reading,))

    # The end.

    def open_gap(self) -> Gap:
        """Return the unsampled steps that no recorded one follows yet."""
        gap = self._gap
        return Gap(gap.steps, gap.ns, self.work_ns - self._charged_ns) if gap.steps else NO_GAP

    def close_last(self, *, whole: bool, updated_at: int | None) -> tuple[RawStep | None, Gap]:
        """Close the open step where it is whole; return it if it was recorded, and unsampled steps in no raw step.

        ``updated_at`` is the position of the step's update. No unsampled step is longer than the step before it: the
        loop may have ended long ago.
        """
        opened, raw = self.open, None
        if opened is None:
            if whole and self.number:
                self._close_unsampled(1, self.last_ns or None)
                self.number += 1
        elif whole and updated_at is not None:
            raw = self.close(until=self._end_of_loop(opened, updated_at))
            self.number += 1
        else:
            self._gap = opened.gap
            if self._recorder.has_phase(Phase.FORWARD):
                self._notes.skip("steps unfinished at the end")
        self.open = None
        return raw, self.open_gap()

    def _end_of_loop(self, opened: OpenStep, updated_at: int) -> int | None:
        """Return the position behind the update; None where the step goes on until now.

        No event ends the last step of a loop: it ends with its update if more time has passed since than before it,
        without the excluded time of the step.
        """
        buffer, clock = self._recorder.buffer, self.clock
        if updated_at + 1 < len(buffer) and self._ends_optimizer(updated_at):
            updated_at += 2
        if not updated_at:
            return None
        updated_ns, now = clock.host_ns(buffer[updated_at - 1]), clock.read()
        since_ns = clock.host_ns(now) - updated_ns - self._excluded_ns
        clock.release((now,))
        return updated_at if since_ns > updated_ns - clock.host_ns(opened.start) else None

    def _ends_optimizer(self, at: int) -> bool:
        code: int = self._recorder.buffer[at]
        is_leave = code & KIND_MASK == LEAVE
        return is_leave and self._recorder.labels[code >> KIND_BITS & INDEX_MASK].phase is Phase.OPTIMIZER

    def stop(self) -> None:
        """Record nothing any more."""
        self.open = None
        self._recorder.stop()
