"""The steps of a session: carry out the detector's decisions; open, pause and close recorded and unsampled steps.

A recorded step becomes a ``RawStep``, an unsampled one is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter_ns, thread_time_ns, time_ns
from typing import TYPE_CHECKING, Any, Final

import torch

from .._capture.marks.codes import ENTER, INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE, PAUSE, THREAD, UNPAUSE
from .._capture.recorder import Recorder
from .._core.failures import contain, describe, ignore
from .._core.notes import Notes
from .._core.signals import DeferSignals, raised_by_handler
from .._core.units import UNITS, count
from .._process import lifecycle
from .._resolve import RawStep
from ..devices import Clock, Memory, Reading
from ..frame import NO_GAP, Gap, Phase
from .events import (
    Decision,
    EndStep,
    Event,
    Exclude,
    ExcludeOpen,
    Include,
    PauseBegins,
    PauseEnds,
)
from .observers import ExcludedTime
from .pipeline import Pipeline
from .sampler import Sampler
from .session_probes import SessionProbes, TargetSet
from .step_cost import StepCost
from .step_detector import StepDetector

if TYPE_CHECKING:
    from .._flight import FlightRecorder
    from .._targets import Target

logger = logging.getLogger("autoprof")


StepListener = Callable[[int], object]
"""Called with the number of each recorded step before it begins; a step of which it returns True is excluded."""


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
    asked: bool
    """Whether the step has work that the user has asked for, such as a deep capture: its cost says nothing."""
    gap: _Gap
    scalars: dict[str, Any] = field(default_factory=dict)


class TrainingSteps:
    """The steps of one session. All methods are called on the training thread.

    The detector decides, the sampler chooses steps, the probes mark them, the pipeline takes closed steps: none of them
    knows another.
    """

    def __init__(
        self,
        detector: StepDetector,
        probes: SessionProbes,
        choose: Callable[[], TargetSet],
        sampler: Sampler,
        pipeline: Pipeline,
        excluded: ExcludedTime,
        recorder: Recorder,
        memory: Memory,
        notes: Notes,
        *,
        cost: StepCost,
        warmup: int,
        listeners: Sequence[StepListener],
        pause_listeners: Sequence[Callable[[bool], object]],
        flight: FlightRecorder | None,
    ) -> None:
        self.work = DeferSignals()
        """Entered around all work of the session's own."""
        self.detector = detector
        self._probes = probes
        self._choose = choose
        """Returns the targets to record from the next step on."""
        probes.use(choose())
        self._sampler = sampler
        self._pipeline = pipeline
        self._excluded = excluded
        self._recorder = recorder
        self._memory = memory
        self._notes = notes
        self.cost = cost
        self._warmup = warmup
        self._listeners = list(listeners)
        self._pause_listeners = tuple(pause_listeners)
        self._flight = flight
        """Is given the end of each step, recorded or not."""
        self.is_off = False
        """Whether nothing is recorded any more."""
        # Steps.
        self.number = 1
        """The number of the open step, recorded or not."""
        self.open: OpenStep | None = None
        """The step being recorded; None while an unsampled step is open, or none."""
        self._next_recorded = 0
        """The number of the recorded step after the open unsampled one."""
        self._captures_next = False
        """Whether a deep capture begins with the step after the one that ends."""
        self._moved = False
        """Whether a module moved to another device in the step that ended last."""
        self._last_ns = 0
        """The length of the last step."""
        self._unsampled_began_ns = self._ended_ns = 0
        """The begin of the open unsampled step, and the end of the step before it."""
        self._end_unix_ns = 0
        """The wall-clock time at which the last recorded step ended."""
        self._gap = _Gap()
        # Excluded time.
        self._pauses = 0
        """The open pauses, one inside the other."""
        self._pause_begins: list[int] = []
        """The begins of those that the program, or a probe, has named."""
        self._validation_ns = 0
        """The begin of the validation that was recognised, without the pauses inside it."""
        self._paused_at_ns = self._excluded_ns = 0
        """The begin of the outermost open pause; the excluded time of the open step."""

    @property
    def is_recording(self) -> bool:
        """Whether the open step is recorded."""
        return self.open is not None and not self.is_off

    @property
    def is_excluded(self) -> bool:
        """Whether time belongs to no step now."""
        return self._pauses > 0

    @property
    def position(self) -> int:
        """The position of the next mark."""
        return len(self._recorder.buffer)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The modules that are timed in the open step, or were in the last one."""
        return self._probes.set.targets

    @property
    def _clock(self) -> Clock:
        return self._recorder.clock

    def now_ns(self) -> int:
        """Return the host time on the session's clock."""
        return self._clock.now()

    # Events and decisions.

    def report(self, event: Event) -> Sequence[Decision]:
        """Have the detector decide on an event, and carry the decisions out; return them."""
        if self.is_off:
            return ()
        try:
            if self.open is not None:
                since = self.detector.calls_needed(event)
                if since is not None:
                    event = event._replace(calls=self._calls_since(since))  # type: ignore[call-arg]
            decisions = self.detector.decide(event)
        except Exception:
            self._recorder.handle_failure("events")
            return ()
        self._carry_out(decisions)
        return decisions

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            act = _ACTIONS.get(type(decision))
            if act is not None:
                try:
                    act(self, decision)
                except Exception:
                    self._recorder.handle_failure("events")

    def _calls_since(self, start: int) -> tuple[str, ...]:
        """Return the fqns of the modules that the training thread called since this position, outermost calls only."""
        buffer, labels = self._recorder.buffer, self._recorder.labels
        calls: dict[str, None] = {}
        inside, paused = -1, False
        for at in range(start, len(buffer), 2):
            code = buffer[at]
            kind = code & KIND_MASK
            if kind in (PAUSE, UNPAUSE):
                paused = kind == PAUSE
            if paused or kind not in (ENTER, LEAVE) or (at and buffer[at - 2] & KIND_MASK == THREAD):
                continue
            if inside < 0 and kind == ENTER and (fqn := labels[code >> KIND_BITS & INDEX_MASK].fqn) is not None:
                calls[fqn] = None
                inside = code & ~KIND_MASK
            elif kind == LEAVE and code & ~KIND_MASK == inside:
                inside = -1
        return tuple(calls)

    @contextmanager
    def exclude(self, name: str) -> Iterator[None]:
        """Charge the block to no step, but to this name; validation inside is counted under its own name."""
        self.report(PauseBegins(name))
        try:
            yield
        finally:
            self.report(PauseEnds())

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

    # From one step to the next.

    def start(self) -> None:
        """Open the first step."""
        self._begin_recorded(self._clock.read())
        self.cost.begin_step()

    def _end_step(self, decision: EndStep) -> None:
        """End the open step, and begin the next one; a failure ends the recording."""
        began_ns = perf_counter_ns()
        if self._goes_on_unsampled(began_ns, decision.held):
            self._go_on_unsampled(decision.held)
            return
        began_cpu_ns = thread_time_ns()
        with self.work:
            try:
                if not self.is_off:
                    self._go_on(began_ns, began_cpu_ns, decision.held)
            except BaseException as error:  # no failure of autoprof may end a training run
                self._switch_off(error)
                if not isinstance(error, Exception) or raised_by_handler(error):
                    raise
            finally:
                self.cost.work_ns += thread_time_ns() - began_cpu_ns
                if self._flight is not None:
                    self._flight.ring.exclude(perf_counter_ns() - began_ns)
                if self.is_recording:
                    self.cost.begin_step()
        lifecycle.finish_termination()

    @property
    def may_skip(self) -> bool:
        """Whether the ends of unsampled steps need not be reported: no flight recorder takes them."""
        return self._flight is None

    def unsampled_steps(self, most_ns: int) -> int:
        """Return how many unsampled steps are left, the open one included, as many as take ``most_ns``."""
        return min(self._next_recorded - self.number, most_ns // max(self._last_ns, 1))

    def skip(self, optimizer: int, steps: int, ended_ns: int) -> None:
        """Count unsampled steps that have ended in the open one, with an update each: they were not reported."""
        if steps > 0:
            self.detector.count_skipped(optimizer, steps)
            self._go_on_unsampled(steps, ended_ns)

    def _goes_on_unsampled(self, now_ns: int, held: int) -> bool:
        """Return whether an unsampled step follows on another one, with nothing to do between them."""
        try:
            if self._flight is not None and self._flight.end_step(now_ns):
                self._captures_next = True
                return False
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._switch_off(error)
            return False
        return self.open is None and self.number + held < self._next_recorded and not self._pipeline.is_due

    def _go_on_unsampled(self, held: int, now_ns: int | None = None) -> None:
        """Close the open unsampled step now, or at the time given, and open another one: each statement here costs."""
        now_ns = self._close_unsampled(held, now_ns=now_ns)
        self.number += 1
        self._unsampled_began_ns, self._excluded_ns = now_ns, 0

    def _go_on(self, began_ns: int, began_cpu_ns: int, held: int) -> None:
        opened, raw = self.open, None
        if opened is None:
            self._close_unsampled(held)
        else:
            raw = self._close(opened, held)
            self._pipeline.submit(raw)
            self.cost.end_step(raw.mark_batch.mark_count, began_ns, began_cpu_ns, counts=not opened.asked)
            if raw.mark_batch.skipped and not raw.warmup:  # the first steps find out which thread trains
                self._notes.warn_once(
                    "other threads call the model while it trains: their calls are not recorded, only those of the "
                    "training thread"
                )
        self.number += 1
        self._next_recorded = self.number if self._captures_next else self._sampler.next_recorded(self.number)
        self._captures_next = False
        if self._next_recorded == self.number:
            self._begin_recorded(None if raw is None else raw.end, is_end=raw is not None)
        else:
            self._begin_unsampled()

    # Open.

    def _begin_unsampled(self) -> None:
        """Open an unsampled step, which begins now."""
        if self.open is not None:
            self.open = None
            self._probes.switch(False)
            self._recorder.suspend()
        else:
            self.count_gap()
            self._pipeline.make_due_pass()
        self._unsampled_began_ns, self._excluded_ns = self.now_ns(), 0
        self._gap.overhead_ns += max(self._unsampled_began_ns - self._ended_ns, 0)

    def _begin_recorded(self, start: Reading, *, is_end: bool = False) -> None:
        """Open a recorded step at the reading ``start``, which may be the end of the last one; None: once attached."""
        start = self._follow_device(start, is_end=is_end)
        if not is_end:
            self._pipeline.summarizer.open_gap = NO_GAP
        number, probes = self.number, self._probes
        if self._flight is not None:
            self._flight.ring.begin_recorded(number)
        asked = True in [listener(number) for listener in self._listeners]
        if probes.use(self._choose()):
            self._sampler.restart()
        note = self._sampler.note_limit(number)
        if note is not None:
            self._notes.add(note)
        warmup = self._pipeline.took_long() or number <= self._warmup or asked
        if self._recorder.suspended:
            self._recorder.resume()
        gap, self._gap, self._excluded_ns = self._gap, _Gap(), 0
        self.open = opened = OpenStep(
            start, self._end_unix_ns or time_ns(), probes.fqns, probes.set.number, warmup, asked, gap
        )
        if not self._pauses:
            probes.switch(True)
        if start is None:
            opened.start, opened.start_unix_ns = self._clock.read(), time_ns()
            gap.overhead_ns += max(self._clock.host_ns(opened.start) - self._ended_ns, 0)

    def _follow_device(self, start: Reading, *, is_end: bool) -> Reading:
        """Read the clock of the device that the model has moved to, if it has; return ``start`` on that clock."""
        placement = self._probes.placement
        if not (self._moved if is_end else placement.moved()):
            return start
        before, index = self._clock, self._clock.device_index
        note = placement.follow()
        if note is not None:
            self._notes.warn_once(note)
        self._end_unix_ns = time_ns()
        clock = self._clock
        if clock is before and clock.device_index == index:
            return start
        self._probes.renew()
        if clock is not before:
            self._pipeline.use_clock(clock)
        elif clock.device_index is not None:
            self._memory = self._memory.on(clock.device_index)
        if start is not None and not is_end:  # the end of a closed step stays with it
            before.release((start,))
        return None if start is None else clock.read()

    def _exclude_open(self, _decision: ExcludeOpen) -> None:
        if self.open is not None:
            self.open.warmup = True

    def count_gap(self) -> None:
        """Have summaries count the unsampled steps since the last recorded one."""
        gap = self._gap
        self._pipeline.summarizer.open_gap = Gap(gap.steps, gap.ns, self.cost.uncharged_ns) if gap.steps else NO_GAP

    def follow(self, listener: StepListener, count: int) -> Callable[[], None]:
        """Record the next ``count`` steps and pass their numbers, the open one's first; return how to end early."""
        first = self.number + 1
        self._sampler.reserve(first, count + 1)
        self._next_recorded = first
        self._listeners.append(listener)
        if self.open is not None and listener(self.number) is True:
            self.open.warmup = self.open.asked = True

        def undo() -> None:
            self._sampler.release(first, count + 1)
            if listener in self._listeners:
                self._listeners.remove(listener)

        return undo

    # Close.

    def _close(self, opened: OpenStep, held: int = 1, *, until: int | None = None) -> RawStep:
        """Close the recorded step, which held so many; it ends now, or with the last mark before ``until``."""
        clock, recorder, placement = self._clock, self._recorder, self._probes.placement
        if until is None:
            end, self._end_unix_ns = clock.read(), time_ns()
        else:
            end = recorder.buffer[until - 1]
        self._ended_ns = clock.host_ns(end)
        self._last_ns = max(self._ended_ns - clock.host_ns(opened.start) - self._excluded_ns, 0)
        if held > 1:  # several steps of equal length, of which the last one is a warm-up step
            self.number += held - 1
            opened.warmup = True
            opened.gap.steps += held - 1
            opened.gap.ns += self._last_ns * (held - 1) // held
        serial = recorder.serial
        mark_batch = recorder.take() if until is None else recorder.take().up_to(until // 2)
        self._moved = placement.moved()
        memory = self._memory.at_step_end()
        overhead_ns = self.cost.charge()
        gap = opened.gap
        return RawStep(
            self.number,
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
            warmup=opened.warmup or (self._moved and placement.has_left()),
            gap_steps=gap.steps,
            gap_ns=gap.ns,
            gap_overhead_ns=gap.overhead_ns,
            instrumented=opened.instrumented,
            cut=opened.cut,
            gap_scalars=gap.scalars,
        )

    def _close_unsampled(self, held: int = 1, most_ns: int | None = None, now_ns: int | None = None) -> int:
        if now_ns is None:
            now_ns = self.now_ns()
        if self._pauses:  # the rest of the pause lies in the next step
            self._excluded_ns += now_ns - self._paused_at_ns
            self._paused_at_ns = now_ns
        length_ns = max(now_ns - self._unsampled_began_ns - self._excluded_ns, 0)
        if most_ns is not None:
            length_ns = min(length_ns, most_ns)
        self._last_ns = length_ns // held
        self._gap.steps += held
        self._gap.ns += length_ns
        self._ended_ns = now_ns
        self.number += held - 1
        return now_ns

    # Excluded time.

    def _exclude(self, decision: Exclude) -> None:
        """Record nothing from now on."""
        with self.work:
            is_outermost = not self._pauses
            self._pauses += 1
            began_ns = self._mark(PAUSE) if is_outermost else self.now_ns()
            if decision.recognised:
                self._validation_ns = began_ns
            else:
                self._pause_begins.append(began_ns)
            if is_outermost:
                self._paused_at_ns = began_ns
                self._attach(False)

    def _include(self, decision: Include) -> None:
        """Record again, and count the time since."""
        with self.work:
            if self._pauses == 1:
                self._attach(True)
            self._pauses -= 1
            if self._pauses:
                ended_ns = self.now_ns()
            else:
                ended_ns = self._mark(UNPAUSE)
                self._excluded_ns += ended_ns - self._paused_at_ns
        if decision.recognised:
            ns = ended_ns - self._validation_ns
        else:
            ns = ended_ns - self._pause_begins.pop()
            self._validation_ns += 0 if decision.name is None else ns
        if decision.name is not None:
            self._excluded.add(decision.name, ns, self.number - 1)

    def _mark(self, code: int) -> int:
        """Append a mark to a recorded step; return its host time in ns."""
        if self.open is None:
            return self.now_ns()
        reading = self._clock.read()
        self._recorder.append(code, reading, get_ident())
        return self._clock.host_ns(reading)

    def _attach(self, on: bool) -> None:
        """Attach or detach the probes of the open step, if it is recorded."""
        now_ns = perf_counter_ns()
        for listener in self._pause_listeners:
            listener(not on)
        if on:
            ns = self.cost.resume(now_ns)
            if self._flight is not None:
                self._flight.ring.exclude(ns)
        else:
            self.cost.pause(now_ns)
        if self.is_recording:
            self._probes.switch(on)

    # The end.

    def finish(self, *, patient: bool) -> None:
        """Close the open step where it is whole, and wait for the device."""
        if not self.is_off:
            self._carry_out(self.detector.end())
            self._end_last()
        self._pipeline.finish(patient=patient)
        with self._notes.contain("memory"):  # an allocation may have failed in an unsampled step
            self._pipeline.add_memory(self._memory.failures())
        found = self.number - 1
        if self.detector.lacks_updates and lifecycle.ended_well():  # else it died in its first step
            self._notes.warn_once(
                "no step was found, because no torch optimizer made a step: call session.step() at the end of each "
                "iteration"
            )
        made = self.detector.steps_missed(found)
        if made is not None:
            self._notes.warn_once(
                f"{count(found, 'step')} {'was' if found == 1 else 'were'} found, "
                f"but one optimizer made {count(made, 'step')}; "
                "to say where a step ends, open the session in the program (autoprof.instrument) and call "
                "session.step() at the end of each iteration"
            )

    def _end_last(self) -> None:
        """Close the open step where it is whole. No unsampled step is longer than the one before: the loop may be over.

        A recorded one that is not whole is skipped.
        """
        self.is_off = True
        opened, self.open = self.open, None
        is_whole = self.detector.is_whole
        if opened is None:
            if is_whole:
                self._close_unsampled(most_ns=self._last_ns or None)
                self.number += 1
        elif is_whole:
            self._pipeline.submit(self._close(opened, until=self._end_of_loop(opened)))
            self.number += 1
        else:
            self._gap = opened.gap
            if self._recorder.has_phase(Phase.FORWARD):
                self._notes.skipped["steps unfinished at the end"] += 1
        self.count_gap()

    def _end_of_loop(self, opened: OpenStep) -> int | None:
        """Return the position behind the update; None where the step goes on until now.

        No event ends the last step of a loop: it ends with its update if more time has passed since than before it,
        and the step would be longer than the one before. The excluded time of the step does not count.
        """
        buffer, clock = self._recorder.buffer, self._clock
        updated_at = self.detector.updated_at
        if updated_at is None:
            updated_at = len(buffer)
        if updated_at + 1 < len(buffer) and buffer[updated_at] & KIND_MASK == LEAVE:
            label = self._recorder.labels[buffer[updated_at] >> KIND_BITS & INDEX_MASK]
            updated_at += 2 if label.phase is Phase.OPTIMIZER else 0  # its span ends after the hooks
        if not updated_at:
            return None
        updated_ns = clock.host_ns(buffer[updated_at - 1])
        before_ns = updated_ns - clock.host_ns(opened.start)
        since_ns = self.now_ns() - updated_ns - self._excluded_ns
        # Times as long as the one before that a step of the same work may be.
        is_longer = before_ns + since_ns > 1.5 * self._last_ns
        return updated_at if since_ns > before_ns and is_longer else None

    def detach(self) -> None:
        """Record nothing any more, and detach all probes, whatever fails."""
        self.is_off, self.open = True, None
        with contain(ignore):
            self._probes.detach_all()
        with contain(ignore):
            self._recorder.stop()

    def _switch_off(self, error: BaseException) -> None:
        logger.debug("the failure that ends the recording", exc_info=error)
        self.is_off, self.open = True, None
        self._pipeline.resume_gc()
        with suppress(Exception):
            self._notes.warn_once(f"recording is off after {describe(error)}")
            self.detach()


_ACTIONS: Final[dict[type, Callable[[TrainingSteps, Any], None]]] = {
    EndStep: TrainingSteps._end_step,
    Exclude: TrainingSteps._exclude,
    Include: TrainingSteps._include,
    ExcludeOpen: TrainingSteps._exclude_open,
}
"""The method that carries a decision out; hooks carry out others."""
