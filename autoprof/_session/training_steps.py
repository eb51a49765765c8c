"""Mediate between the parts of a session: pass events to the detector, and carry out its decisions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, Final

from .._capture.recorder import Recorder
from .._core.failures import contain, describe, ignore
from .._core.notes import Notes
from .._core.signals import DeferSignals, raised_by_handler
from .._core.units import count
from .._process import lifecycle
from .._resolve import RawStep
from ..frame import NO_GAP
from .events import (
    Decision,
    EndLast,
    EndStep,
    Event,
    Exclude,
    ExcludeOpen,
    Include,
    LoopEnds,
    PauseBegins,
    PauseEnds,
)
from .observers import ExcludedTime
from .pipeline import Pipeline
from .sampling import Sampling
from .step_detector import StepDetector
from .step_recorder import StepRecorder

if TYPE_CHECKING:
    from .._flight import FlightRecorder

logger = logging.getLogger("autoprof")


StepListener = Callable[[int], object]
"""Called with the number of each recorded step before it begins; a step of which it returns True is a warm-up step."""


class TrainingSteps:
    """The steps of one session. All methods are called on the training thread.

    The detector decides, the recorder keeps the step, the sampling chooses steps and rows, the pipeline takes closed
    steps: none of them knows another.
    """

    def __init__(
        self,
        detector: StepDetector,
        steps: StepRecorder,
        sampling: Sampling,
        pipeline: Pipeline,
        excluded: ExcludedTime,
        recorder: Recorder,
        notes: Notes,
        *,
        warmup: int,
        listeners: Sequence[StepListener],
        pause_listeners: Sequence[Callable[[bool], object]],
        flight: FlightRecorder | None,
    ) -> None:
        self._flight = flight
        """Is given the end of each step, recorded or not."""
        self.work = DeferSignals()
        """Entered around all work of the session's own."""
        self.detector = detector
        self.steps = steps
        """Keeps the open step."""
        self._sampling = sampling
        self._pipeline = pipeline
        self._excluded = excluded
        self._recorder = recorder
        self._notes = notes
        self._warmup = warmup
        self._listeners = list(listeners)
        self._pause_listeners = tuple(pause_listeners)
        self.is_off = False
        """Whether nothing is recorded any more."""
        self._next_recorded = 0
        """The number of the recorded step after the open unsampled one."""
        self._captures_next = False
        """Whether a deep capture begins with the step after the one that ends."""
        self._paused_ns = self._paused_cpu_ns = 0
        self._pause_begins: list[int] = []
        """The begins of the open pauses that the program, or a probe, has named."""
        self._validation_ns = 0
        """The begin of the validation that was recognised, without the pauses inside it."""

    @property
    def is_recording(self) -> bool:
        """Whether the open step is recorded."""
        return self.steps.open is not None and not self.is_off

    @property
    def is_excluded(self) -> bool:
        """Whether time belongs to no step now."""
        return self.steps.pauses > 0

    @property
    def position(self) -> int:
        """The position of the next mark."""
        return self.steps.position

    # Events and decisions.

    def report(self, event: Event) -> Sequence[Decision]:
        """Have the detector decide on an event, and carry the decisions out; return them."""
        if self.is_off:
            return ()
        try:
            if self.steps.open is not None:
                since = self.detector.calls_needed(event)
                if since is not None:
                    calls = () if since >= self.position else self._calls_since(since)
                    event = event._replace(calls=calls)  # type: ignore[call-arg]
            decisions = self.detector.decide(event)
        except Exception:
            self._recorder.handle_failure("events")
            return ()
        for decision in decisions:
            act = _ACTIONS.get(type(decision))
            if act is not None:
                try:
                    act(self, decision)
                except Exception:
                    self._recorder.handle_failure("events")
        return decisions

    def _calls_since(self, position: int) -> Any:
        with contain(ignore):
            return self.steps.calls_since(position)
        self._recorder.count_failure("calls of modules")
        return None

    @contextmanager
    def exclude(self, name: str) -> Iterator[None]:
        """Charge the block to no step, but to this name; validation inside is counted under its own name."""
        if not self.report(PauseBegins(name)):  # validation that was recognised already
            yield
            return
        try:
            yield
        finally:
            self.report(PauseEnds())

    # Steps.

    def start(self) -> None:
        """Open the first step."""
        self.steps.number = 1
        self._begin_recorded(self.steps.clock.read(), None)
        self._sampling.start_clocks()

    def _end_step(self, decision: EndStep) -> None:
        """End the open step, and begin the next one; a failure ends the recording."""
        began_ns = perf_counter_ns()
        if self._goes_on_unsampled(began_ns, decision.held):
            self.steps.go_on_unsampled(decision.held)
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
                self.steps.work_ns += thread_time_ns() - began_cpu_ns
                if self._flight is not None:
                    self._flight.ring.exclude(perf_counter_ns() - began_ns)
                if self.is_recording:
                    self._sampling.start_clocks()
        lifecycle.finish_termination()

    @property
    def may_skip(self) -> bool:
        """Whether the ends of unsampled steps need not be reported: no flight recorder takes them."""
        return self._flight is None

    def unsampled_steps(self, most_ns: int) -> int:
        """Return how many unsampled steps are left, the open one included, as many as take ``most_ns``."""
        left = self._next_recorded - self.steps.number
        return min(left, most_ns // max(self.steps.last_ns, 1))

    def skip(self, optimizer: int, steps: int, ended_ns: int) -> None:
        """Count unsampled steps that have ended in the open one, with an update each: they were not reported."""
        if steps > 0:
            self.detector.count_skipped(optimizer, steps)
            self.steps.go_on_unsampled(steps, ended_ns)

    def _goes_on_unsampled(self, now_ns: int, held: int) -> bool:
        """Return whether an unsampled step follows on another one, with nothing to do between them."""
        steps = self.steps
        try:
            if self._flight is not None and self._flight.end_step(now_ns):
                self._captures_next = True
                return False
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._switch_off(error)
            return False
        return steps.open is None and steps.number + held < self._next_recorded and not self._pipeline.is_due

    def _go_on(self, began_ns: int, began_cpu_ns: int, held: int) -> None:
        steps, sampling = self.steps, self._sampling
        raw = steps.close(held)
        if raw is not None:
            self._pipeline.submit(raw)
            batch = raw.mark_batch
            ended_cpu_ns = thread_time_ns()
            paid_ns = steps.work_ns + steps.metered_ns + ended_cpu_ns - began_cpu_ns - self._pipeline.passes_ns
            sampling.close(batch.mark_count, paid_ns, began_ns, began_cpu_ns)
            if batch.skipped:
                self._notes.warn_once(
                    "other threads call the model while it trains: their calls are not recorded, only those of the "
                    "training thread"
                )
        steps.number += 1
        self._next_recorded = steps.number if self._captures_next else sampling.next_recorded(steps.number)
        self._captures_next = False
        if self._next_recorded > steps.number:
            self._begin_unsampled(raw)
        else:
            self._begin_recorded(None if raw is None else raw.end, raw)

    def _begin_unsampled(self, ended: RawStep | None) -> None:
        if ended is not None:
            self._sampling.switch(False)
        else:
            self.count_gap()
            self._pipeline.make_due_pass()
        self.steps.begin_unsampled()

    def _begin_recorded(self, start: Any, ended: RawStep | None) -> None:
        """Begin a recorded step at the reading ``start``, the end of ``ended``; None: once all is attached."""
        steps, sampling, pipeline = self.steps, self._sampling, self._pipeline
        clock, index = steps.clock, steps.clock.device_index
        begins = steps.follow_device(start, is_end=ended is not None)
        if steps.clock is not clock or steps.clock.device_index != index:
            sampling.renew()
        if steps.clock is not clock:
            pipeline.use_clock(steps.clock)
        if ended is None:
            pipeline.open_gap = NO_GAP
        number = steps.number
        if self._flight is not None:
            self._flight.ring.begin_recorded(number)
        excluded = True in [listener(number) for listener in self._listeners]
        note = sampling.begin_step(number)
        if note is not None:
            self._notes.warn_once(note)
        warmup = pipeline.took_long() or number <= self._warmup or excluded
        steps.begin(begins, sampling.fqns, sampling.set.number, warmup=warmup)
        if not steps.pauses:
            sampling.switch(True)
        steps.started()

    def _exclude_open(self, _decision: ExcludeOpen) -> None:
        if self.steps.open is not None:
            self.steps.open.warmup = True

    def count_gap(self) -> None:
        """Have summaries count the unsampled steps since the last recorded one."""
        self._pipeline.open_gap = self.steps.open_gap()

    def follow(self, listener: StepListener, count: int) -> Callable[[], None]:
        """Record the next ``count`` steps and pass their numbers, the open one's first; return how to end early."""
        steps, sampling = self.steps, self._sampling
        first = steps.number + 1
        sampling.reserve(first, count + 1)
        self._next_recorded = first
        self._listeners.append(listener)
        if steps.open is not None and listener(steps.number) is True:
            steps.open.warmup = True

        def undo() -> None:
            sampling.release(first, count + 1)
            if listener in self._listeners:
                self._listeners.remove(listener)

        return undo

    # Excluded time.

    def _exclude(self, decision: Exclude) -> None:
        """Record nothing from now on."""
        with self.work:
            began_ns = self.steps.pause()
            if decision.recognised:
                self._validation_ns = began_ns
            else:
                self._pause_begins.append(began_ns)
            if self.steps.pauses == 1:
                self._attach(False)

    def _include(self, decision: Include) -> None:
        """Record again, and count the time since."""
        with self.work:
            if self.steps.pauses == 1:
                self._attach(True)
            ended_ns = self.steps.resume()
        if decision.recognised:
            ns = ended_ns - self._validation_ns
        else:
            ns = ended_ns - self._pause_begins.pop()
            self._validation_ns += 0 if decision.name is None else ns
        if decision.name is not None:
            self._excluded.add(decision.name, ns, self.steps.ended)

    def _attach(self, on: bool) -> None:
        """Attach or detach the probes of the open step, if it is recorded."""
        now_ns = perf_counter_ns()
        for listener in self._pause_listeners:
            listener(not on)
        if on:
            ns = now_ns - self._paused_ns
            self._sampling.exclude_pause(ns, thread_time_ns() - self._paused_cpu_ns)
            if self._flight is not None:
                self._flight.ring.exclude(ns)
        else:
            self._paused_ns, self._paused_cpu_ns = now_ns, thread_time_ns()
        if self.is_recording:
            self._sampling.switch(on)

    # The end.

    def finish(self, *, patient: bool) -> None:
        """Close the open step where it is whole, and wait for the device."""
        for decision in self.report(LoopEnds(self.position)):
            if isinstance(decision, EndLast):  # a failure here is one of the last step
                self._end_last(decision)
        self._pipeline.finish(patient=patient)
        found = self.steps.ended
        if self.detector.lacks_updates:
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

    def _end_last(self, decision: EndLast) -> None:
        self.is_off = True
        raw, gap = self.steps.close_last(whole=decision.whole, updated_at=decision.updated_at)
        if raw is not None:
            self._pipeline.submit(raw)
        self._pipeline.open_gap = gap

    def detach(self) -> None:
        """Detach all probes, whatever fails."""
        self.is_off = True
        with contain(ignore):
            self._sampling.detach_all()
        with contain(ignore):
            self.steps.stop()

    def _switch_off(self, error: BaseException) -> None:
        logger.debug("the failure that ends the recording", exc_info=error)
        self.steps.open = None
        self.is_off = True
        self._pipeline.resume_gc()
        with suppress(Exception):
            self._notes.warn_once(f"recording is off after {describe(error)}")
            self._sampling.detach_all()
            self.steps.stop()


_ACTIONS: Final[dict[type, Callable[[TrainingSteps, Any], None]]] = {
    EndStep: TrainingSteps._end_step,
    Exclude: TrainingSteps._exclude,
    Include: TrainingSteps._include,
    ExcludeOpen: TrainingSteps._exclude_open,
}
"""The method that carries a decision out; hooks carry out others."""
