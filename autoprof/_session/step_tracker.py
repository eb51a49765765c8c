"""Open and close the steps of a run, and begin and end the gaps of unsampled steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from threading import get_ident
from time import perf_counter_ns, thread_time_ns, time_ns
from typing import Any, Final, Protocol

import torch

from .._capture.marks import KIND_MASK, PAUSE, UNPAUSE, VALUE_KINDS, MarkBatch
from .._capture.other_threads import MAX_OTHER_MARKS, NO_OTHER_MARKS, OtherMarks
from .._capture.probes import Placement
from .._capture.recorder import Recorder
from .._notes import Notes
from .._process.failures import contain, describe, ignore
from .._process.signals import DeferSignals, raised_by_handler
from .._resolve import RawStep
from .._stats import NO_GAP, OpenGap
from .._units import UNITS
from ..devices import Clock, Memory, Reading
from ..frame import Phase
from .pipeline import Pipeline
from .sampling import Sampling

logger = logging.getLogger("autoprof")

OTHER_THREADS_OFF: Final = (
    "other threads call the model while it trains, and recording their calls costs more than the budget allows: these "
    "calls are no longer recorded, only those of the training thread; `sample: {budget: null}` records all of them"
)
OTHER_THREADS_CUT: Final = (
    f"other threads called the model more often than is recorded in a step ({MAX_OTHER_MARKS:,} marks): "
    "their further calls in such steps are not in the reports"
)
MOVED: Final = (
    "the model moved to another device inside a step: that step has host times only, because its device times were "
    "read on the device that it left; later steps have both"
)

StepListener = Callable[[int], object]
"""Called with the number of each recorded step before it begins; a step of which it returns True is a warm-up step."""


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


def _without_device_times(batch: MarkBatch, clock: Clock) -> MarkBatch:
    """Return the marks with host times alone."""
    pairs = zip(batch.codes, batch.readings, strict=True)
    readings = [value if code & KIND_MASK in VALUE_KINDS else clock.on_host(value) for code, value in pairs]
    return batch._replace(raw_readings=readings)


class Following(Enum):
    """The state after a step has ended."""

    RECORDED = "a recorded step is open"
    UNSAMPLED = "an unsampled step is open"
    AFTER_GAP = "the gap is over, and the next training forward begins a recorded step"
    NOTHING = "nothing is recorded any more"


class OpenStep:
    """The step that is being recorded."""

    __slots__ = (
        "cut",
        "gap_ns",
        "gap_overhead_ns",
        "gap_scalars",
        "gap_steps",
        "instrumented",
        "scalars",
        "start",
        "start_unix_ns",
        "warmup",
    )

    def __init__(
        self,
        start: Reading,
        start_unix_ns: int,
        instrumented: frozenset[str],
        cut: int,
        *,
        warmup: bool,
        gap_steps: int,
        gap_ns: int,
    ) -> None:
        self.start = start
        self.start_unix_ns = start_unix_ns
        self.instrumented = instrumented
        self.cut = cut
        self.warmup = warmup
        self.gap_steps = gap_steps
        self.gap_ns = gap_ns
        self.gap_overhead_ns = 0
        self.gap_scalars: Mapping[str, Sequence[Any]] = {}
        self.scalars: dict[str, Any] = {}


class StepTracker:
    """Open and close the steps of one session, on the training thread."""

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        memory: Memory,
        sampling: Sampling,
        pipeline: Pipeline,
        notes: Notes,
        *,
        warmup: int = 0,
        placement: Placement | None = None,
        cost_meters: Sequence[CostMeter] = (),
        listeners: Sequence[StepListener] = (),
        pause_listeners: Sequence[Callable[[bool], object]] = (),
    ) -> None:
        self.work = DeferSignals()
        """Entered around all work of the session's own."""
        self.open: OpenStep | None = None
        """The step being recorded; None in a gap."""
        self.pause_work_ns = 0
        """Autoprof's own work in the last pause: detaching the probes, and attaching them again."""
        self._recorder = recorder
        self._clock = clock
        self._memory = memory
        self._sampling = sampling
        self._pipeline = pipeline
        self._notes = notes
        self._warmup = warmup
        self._placement = placement
        self._cost_meters = tuple(cost_meters)
        self._listeners = list(listeners)
        self._pause_listeners = tuple(pause_listeners)
        self._off = False
        self._moved = False
        self._pauses = 0
        self._paused_ns = 0
        self._number = 0
        self._end_unix_ns = 0
        """The wall-clock time at which the last recorded step ended."""
        self._gap_scalars: dict[str, list[Any]] = {}
        self._gap_begin_ns = 0
        """Autoprof's own work between the last recorded step and the gap after it."""
        self._in_gap_ns = 0
        """The same inside of the gap, in whose unsampled steps it is not counted."""
        self._work_ns = 0
        """Processor time of autoprof's own work at the ends of steps."""
        self._began_cpu_ns = 0
        self._paused_cpu_ns = 0
        self._metered_ns = 0
        """The time of the cost meters so far, with that of shapes and experts, which the recorder adds up."""
        self._charged_ns = 0

    @property
    def paused(self) -> bool:
        """Whether time belongs to no step now."""
        return self._pauses > 0

    def follow(self, listener: StepListener, count: int) -> Callable[[], None]:
        """Record the next ``count`` steps and pass their numbers, the open one's first; return how to end early."""
        first, count = self._number + 1, count + self._sampling.end_gap_early() + 1
        self._sampling.reserve(first, count)
        self._listeners.append(listener)
        if self.open is not None and listener(self._number) is True:
            self.open.warmup = True

        def undo() -> None:
            self._sampling.release(first, count)
            if listener in self._listeners:
                self._listeners.remove(listener)

        return undo

    def log(self, name: str, value: Any) -> None:
        """Attach a scalar to the open step; of an unsampled step only the units of work are kept.

        Raises ``TypeError`` or ``ValueError`` where it is no number.
        """
        if self.open is not None:
            self.open.scalars[name] = as_scalar(value)
        elif name in UNITS:
            held, scalar = self._gap_scalars.setdefault(name, []), as_scalar(value)
            if held and type(held[-1]) is type(scalar) is float:
                held[-1] += scalar
            else:
                held.append(scalar)

    def start(self) -> None:
        """Open the first step."""
        self._open(self._clock.read())
        self._sampling.start_clocks()

    def exclude_open(self) -> None:
        """Make the open step a warm-up step."""
        if self.open is not None:
            self.open.warmup = True

    @property
    def count(self) -> int:
        """The number of steps that have ended, recorded or not."""
        return self._number - (self.open is not None)

    @property
    def ended(self) -> int:
        """The number of steps that have ended, those of the present gap so far included."""
        return self.count + self._sampling.steps_in_gap

    def count_gap(self) -> None:
        """Have summaries count the unsampled steps since the last recorded one."""
        self._pipeline.open_gap = self._open_gap()

    def _open_gap(self) -> OpenGap:
        if not self._sampling.in_gap:
            return NO_GAP
        steps, elapsed_ns = self._sampling.open_gap()
        return OpenGap(steps, max(elapsed_ns - self._in_gap_ns, 0), self._work_ns - self._charged_ns)

    def warn_once(self, note: str) -> None:
        """Keep a note for the reports; log it the first time."""
        self._notes.warn_once(note)

    # From one step to the next.

    def begin_work(self) -> None:
        """Called where autoprof's own work at the end of a step begins."""
        self._began_cpu_ns = thread_time_ns()

    def end_work(self) -> None:
        """Called where that work is done: the next step goes on."""
        self._work_ns += thread_time_ns() - self._began_cpu_ns
        if self.open is not None:
            self._sampling.start_clocks()

    def end(self, began_ns: int, optimizer_steps: int | None = None, held: int = 1) -> Following:
        """End the open step, or in a gap do the work that is due; ``began_ns`` is when the work for it began.

        ``optimizer_steps`` were made in the step; None where steps end by ``session.step``. It turned out to hold
        ``held`` training steps. A failure ends the recording, and is raised only if the user caused it.
        """
        if self._off:
            return Following.NOTHING
        try:
            if self.open is not None:
                self._sampling.end_recorded(began_ns)
                if held > 1:
                    self._divide(self.open, held)
                return self._end_recorded(began_ns, optimizer_steps)
            if self._sampling.gap_remaining:
                following = self._continue_gap(began_ns, automatic=optimizer_steps is not None)
                if following is not None:
                    return following
            return self._end_gap(began_ns)
        except BaseException as error:  # no failure of autoprof may end a training run
            self._switch_off(error)
            if not isinstance(error, Exception) or raised_by_handler(error):
                raise
            return Following.NOTHING
        finally:
            self._sampling.exclude_own(perf_counter_ns() - began_ns)

    def _divide(self, opened: OpenStep, held: int) -> None:
        """Count the open step as several of equal length, of which the last one is a warm-up step."""
        now = self._clock.read()
        length_ns = self._clock.host_ns(now) - self._clock.host_ns(opened.start)
        self._clock.release((now,))
        self._number += held - 1
        opened.warmup = True
        opened.gap_steps += held - 1
        opened.gap_ns += length_ns * (held - 1) // held

    def _end_recorded(self, began_ns: int, optimizer_steps: int | None) -> Following:
        """Go from a recorded step to the next one, or into a gap."""
        raw = self._close()
        paid_ns = self._work_ns + self._metered_ns + thread_time_ns() - self._began_cpu_ns
        batch = raw.mark_batch
        gap = self._sampling.close(self._number, batch.mark_count, paid_ns, began_ns, self._began_cpu_ns, batch.other)
        if batch.other is not NO_OTHER_MARKS:
            self._note_other_threads(batch.other)
        if not gap:
            self._open(raw.end, raw)
            return Following.RECORDED
        self._pipeline.release_end(raw)
        self.open = None
        gap_began_ns = self._sampling.begin_gap(gap, max(optimizer_steps or 1, 1))
        self._gap_begin_ns, self._in_gap_ns = gap_began_ns - began_ns, 0
        return Following.UNSAMPLED

    def _note_other_threads(self, other: OtherMarks) -> None:
        if not self._sampling.records_other_threads:
            self.warn_once(OTHER_THREADS_OFF)
        elif other.exceeded:
            self.warn_once(OTHER_THREADS_CUT)

    def _continue_gap(self, now_ns: int, *, automatic: bool) -> Following | None:
        """Pass on steps that wait; return None where the gap is over and a recorded step is to be opened."""
        if self._sampling.check_gap(now_ns):
            self.count_gap()
            self._pipeline.make_due_pass()
            self._in_gap_ns += perf_counter_ns() - now_ns
            return Following.UNSAMPLED
        return Following.AFTER_GAP if automatic else None

    def _end_gap(self, now_ns: int) -> Following:
        """Go from a gap to the next recorded step."""
        steps, elapsed_ns = self._sampling.end_gap(now_ns, self._in_gap_ns)
        self._number += steps
        self._pipeline.open_gap = NO_GAP
        self._open(None, gap_steps=steps, gap_ns=elapsed_ns)
        if self.open is not None:
            self.open.gap_scalars, self._gap_scalars = self._gap_scalars, {}
            self.open.gap_overhead_ns = self._gap_begin_ns + self._in_gap_ns + perf_counter_ns() - now_ns
        return Following.RECORDED

    def _open(self, start: Reading, ended: RawStep | None = None, gap_steps: int = 0, gap_ns: int = 0) -> None:
        """Begin the step at the reading ``start``, the end of the step ``ended``; None: once all is attached."""
        moved = self._moved if ended is not None else self._placement is not None and self._placement.moved()
        # The work since the end of a step may take milliseconds: the wall clock was read beside its last mark.
        start_unix_ns = time_ns() if ended is None else self._end_unix_ns
        if self._placement is not None and moved:
            start, start_unix_ns = self._follow_device(self._placement, start, ended), time_ns()
        self._number += 1
        self._sampling.begin_recorded(self._number)
        excluded = True in [listener(self._number) for listener in self._listeners] if self._listeners else False
        sampling = self._sampling
        note = sampling.describe_change(self._number)
        if note is not None:
            self._notes.warn_once(note)
        sampling.begin_step()
        self.open = opened = OpenStep(
            start,
            start_unix_ns,
            sampling.instrumented,
            sampling.cut,
            warmup=self._pipeline.took_long() or self._number <= self._warmup or excluded,
            gap_steps=gap_steps,
            gap_ns=gap_ns,
        )
        if not self._pauses:
            sampling.switch(True)
        if start is None:
            opened.start = self._clock.read()
            opened.start_unix_ns = time_ns()

    def _close(self, end: Reading = None, until: int | None = None) -> RawStep:
        """Close the recorded step at the reading ``end``, by default at one taken now, and pass it on.

        Marks from the position ``until`` of the buffer on are dropped.
        """
        if end is None:
            end = self._clock.read()
            self._end_unix_ns = time_ns()
        opened, recorder = self.open, self._recorder
        assert opened is not None
        serial = recorder.serial
        mark_batch = recorder.take() if until is None else recorder.take().up_to(until // 2)
        placement = self._placement
        self._moved = placement is not None and placement.moved()
        if placement is not None and self._moved and placement.has_left():
            self._notes.warn_once(MOVED)
            mark_batch = _without_device_times(mark_batch, self._clock)
        memory = self._memory.at_step_end()
        overhead_ns, self._charged_ns = self._work_ns - self._charged_ns, self._work_ns
        for meter in self._cost_meters:
            if meter.spent_ns:
                overhead_ns += meter.spent_ns
                self._metered_ns += meter.spent_ns
                meter.spent_ns = 0
        self._metered_ns += mark_batch.detail_ns
        overhead_ns += self._sampling.cost_of(mark_batch.other)
        raw = RawStep(
            self._number,
            opened.start_unix_ns,
            serial,
            self._clock,
            opened.start,
            end,
            mark_batch,
            opened.scalars,
            memory,
            overhead_ns,
            opened.warmup,
            opened.gap_steps,
            opened.gap_ns,
            opened.gap_overhead_ns,
            opened.instrumented,
            opened.cut,
            opened.gap_scalars,
        )
        self._pipeline.submit(raw)
        return raw

    def _follow_device(self, placement: Placement, start: Reading, ended: RawStep | None) -> Reading:
        """Read the clock of the device that the model has moved to; return a ``start`` that is known, on that clock."""
        before = self._clock, self._clock.device_index
        note = placement.follow()
        if note is not None:
            self._notes.warn_once(note)
        self._clock = clock = self._recorder.clock
        if (clock, clock.device_index) == before:
            return start
        if ended is not None:
            self._pipeline.release_end(ended)
        elif start is not None:
            before[0].release((start,))
        if clock is not before[0]:
            self._pipeline.use_clock(clock)
        elif clock.device_index is not None:
            self._memory = self._memory.on(clock.device_index)
        return None if start is None else clock.read()

    # Pauses.

    def pause(self, since: Reading = None) -> int:
        """Record nothing from now on, or from the reading ``since`` in the buffer; return its host time in ns."""
        with self.work:
            self._pauses += 1
            try:
                now = self._clock.read()  # detaching the probes belongs to the pause
                now_ns = self._clock.host_ns(now)
                begins = self._pauses == 1 and self._attach(False)
                if self._pauses == 1:
                    self.pause_work_ns = self.now_ns() - now_ns
                if since is None:
                    return self._mark(PAUSE, now, begins)
                self._clock.release((now,))
                return self._clock.host_ns(since)
            except Exception:
                self._recorder.handle_failure("pauses")
                return 0

    def resume(self) -> int:
        """End a pause; return the host time in ns."""
        with self.work:
            self._pauses -= 1
            try:
                now_ns = self.now_ns()
                ends = not self._pauses and self._attach(True)
                ended_ns = self._mark(UNPAUSE, self._clock.read(), ends)
                if not self._pauses:
                    self.pause_work_ns += ended_ns - now_ns
                return ended_ns
            except Exception:
                self._recorder.handle_failure("pauses")
                return 0

    def now_ns(self) -> int:
        """Return the host time on the session's clock."""
        reading = self._clock.read()
        self._clock.release((reading,))
        return self._clock.host_ns(reading)

    def exclude_ns(self, ns: int) -> None:
        """Exclude time whose marks became a pause afterwards."""
        self._sampling.exclude_pause(ns)

    def _attach(self, on: bool) -> bool:
        """Attach or detach the probes of the open step; return whether there is one."""
        now_ns = perf_counter_ns()
        for listener in self._pause_listeners:
            listener(not on)
        if on:
            self._sampling.exclude_pause(now_ns - self._paused_ns, thread_time_ns() - self._paused_cpu_ns)
        else:
            self._paused_ns, self._paused_cpu_ns = now_ns, thread_time_ns()
        if self.open is None or self._off:
            return False
        self._sampling.switch(on)
        return True

    def _mark(self, code: int, reading: Reading, counts: bool) -> int:
        """Append a mark where it counts, or give the reading back; return its host time in ns."""
        now = self._clock.host_ns(reading)
        if counts:
            self._recorder.append(code, reading, get_ident())
        else:
            self._clock.release((reading,))
        return now

    # The end.

    def finish(self, *, whole: bool, patient: bool, until: int | None = None) -> None:
        """Close the open step where it is ``whole``, and wait for the device.

        The loop ended with the mark before the position ``until`` of the buffer; None: it ends now.
        """
        self._off = True
        if self._sampling.in_gap:
            gap = self._open_gap()
            self._sampling.abort_gap()
            self._pipeline.open_gap = NO_GAP
            self._number += gap.steps
            self._pipeline.count_unsampled(gap)
        if self.open is not None and whole:
            self._close(None if until is None else self._recorder.buffer[until - 1], until)
            self.open = None
        elif self.open is not None:
            if self.open.gap_steps:
                self._pipeline.count_unsampled(OpenGap(self.open.gap_steps, self.open.gap_ns))
            if self._recorder.has_phase(Phase.FORWARD):
                self._notes.skip("steps unfinished at the end")
        self._pipeline.finish(patient=patient)

    def detach(self) -> None:
        """Detach all probes, whatever fails."""
        self._off = True
        self._sampling.gap_remaining = 0
        with contain(ignore):
            self._sampling.detach_all()
        with contain(ignore):
            self._recorder.stop()
        self.open = None

    def _switch_off(self, error: BaseException) -> None:
        logger.debug("the failure that ends the recording", exc_info=error)
        self.open = None
        self._off = True
        self._pipeline.resume_gc()
        with suppress(Exception):
            self._notes.warn_once(f"recording is off after {describe(error)}")
            self._sampling.switch(False)
            self._recorder.stop()
