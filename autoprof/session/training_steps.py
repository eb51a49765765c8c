"""The steps of a session: carry out the detector's decisions; open, pause and close recorded and unsampled steps.

A recorded step becomes a ``RawStep``, an unsampled one is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter_ns
from typing import Any, Final

from ..base.allowance import SAMPLED_CALLS
from ..base.failures import describe
from ..base.frame import NO_GAP, Gap, Phase
from ..base.notes import Notes
from ..base.process import lifecycle
from ..base.signals import DeferSignals, raised_by_handler
from ..base.units import UNITS
from ..capture.marks.mark_batch import INTEGER_BYTES
from ..devices import Reading
from ..targets import Target
from .controller import Controller
from .events import OFF, Decision, EndStep, Exclude, ExcludeOpen, Include, PauseBegins, PauseEnds
from .exclusions import Exclusions
from .missed_steps import note_missed_steps
from .open_gap import OpenGap, as_scalar
from .pipeline import Pipeline
from .repeated_steps import RepeatedSteps
from .step_cost import StepCost
from .step_detector import StepDetector
from .step_listeners import StepListener, StepListeners
from .step_recording import StepRecording

logger = logging.getLogger("autoprof")


class TrainingSteps:
    """The steps of one session. All methods are called on the training thread.

    The detector decides, the controller chooses steps, the recording records them, the pipeline takes closed steps:
    none of them knows another.
    """

    def __init__(
        self,
        events: RepeatedSteps,
        controller: Controller,
        recording: StepRecording,
        pipeline: Pipeline,
        exclusions: Exclusions,
        listeners: StepListeners,
        cost: StepCost,
        notes: Notes,
    ) -> None:
        self.work = DeferSignals()
        """Entered around all work of the session's own."""
        self._events = events
        self.decide = events.decide
        """Returns the decisions on an event, which ``carry_out`` takes."""
        self._controller = controller
        self._recording = recording
        self._pipeline = pipeline
        self._exclusions = exclusions
        self._listeners = listeners
        self.cost = cost
        self._notes = notes
        self._carried = 0
        """The events with decisions since one was measured."""
        self.number = 1
        """The number of the open step, recorded or not."""
        self._next_recorded = 0
        """The number of the recorded step after the open unsampled one."""
        self._last_ns = self._ended_ns = 0
        """The length and the end of the last step."""
        self._gap = OpenGap()

    @property
    def is_recording(self) -> bool:
        """Whether the open step is recorded."""
        return self._recording.open is not None

    @property
    def is_excluded(self) -> bool:
        """Whether time belongs to no step now."""
        return self._exclusions.depth > 0

    @property
    def targets(self) -> tuple[Target, ...]:
        """The modules that are timed in the open step, or were in the last one."""
        return self._recording.probes.set.targets

    def now_ns(self) -> int:
        """Return the host time on the session's clock."""
        return self._recording.recorder.clock.now()

    # Events and decisions.

    @property
    def is_off(self) -> bool:
        """Whether nothing is recorded any more."""
        return self._events.is_off

    def carry_out(self, decisions: Iterable[Decision]) -> Sequence[Decision]:
        """Carry out the decisions that ``ACTIONS`` names; return the others."""
        self._carried += 1
        if self._carried == SAMPLED_CALLS:
            self._carried = -1  # these are counted once more
            with self.cost.sampled():
                return self.carry_out(decisions)
        others: list[Decision] = []
        for decision in decisions:
            action = ACTIONS.get(type(decision))
            if action is None:
                others.append(decision)
                continue
            try:
                action(self, decision)
            except Exception:
                self._recording.recorder.handle_failure("events")
        return OFF if self._events.is_off else others

    @contextmanager
    def excluding(self, name: str, *, chosen: bool = False) -> Iterator[None]:
        """Charge the block to no step, but to this name; validation inside is counted under its own name.

        ``chosen``: the program names it as a part of its work.
        """
        if chosen:
            self._exclusions.choose(name)
        self.carry_out(self.decide(PauseBegins(name)))
        try:
            yield
        finally:
            self.carry_out(self.decide(PauseEnds()))

    def log(self, name: str, value: Any) -> None:
        """Attach a scalar to the open step; of an unsampled step only the units of work are kept.

        Inside of a stage they are the stage's. Raises ``TypeError`` or ``ValueError`` where it is no number.
        """
        opened = self._recording.open
        if self._exclusions.depth and name in UNITS:
            self._exclusions.log(name, value)
        elif opened is not None:
            opened.scalars[name] = as_scalar(value)
        else:
            self._gap.log(name, value)

    # From one step to the next.

    def start(self) -> None:
        """Open the first step."""
        self._begin_recorded(self._recording.clock.read())
        self.cost.begin_step()

    def _end_step(self, decision: EndStep) -> None:
        """End the open step, and begin the next one; a failure ends the recording."""
        began_ns = perf_counter_ns()
        is_plain = self._recording.open is not None and self._listeners.are_idle
        if not is_plain and self._goes_on_unsampled(began_ns, decision.steps_in_one):
            self._go_on_unsampled(decision.steps_in_one)
            return
        with self.work:
            try:
                with self.cost.work:
                    if not self._events.is_off:
                        self._go_on(began_ns, decision.steps_in_one)
            except BaseException as error:  # no failure of autoprof may end a training run
                self._switch_off(error)
                if not isinstance(error, Exception) or raised_by_handler(error):
                    raise
            finally:
                if not self._listeners.are_idle:
                    self._listeners.subtract(perf_counter_ns() - began_ns)
                if self._recording.open is not None:
                    self.cost.begin_step()
        if lifecycle.terminated:
            lifecycle.finish_termination()

    def unsampled_steps(self, most_ns: int) -> int:
        """Return how many unsampled steps may end without a report, the open one included: they take ``most_ns``."""
        if self._recording.open is not None or self._listeners.need_each_end:
            return 0
        return min(self._next_recorded - self.number, most_ns // max(self._last_ns, 1))

    def skip(self, optimizer: int, steps: int, ended_ns: int) -> None:
        """Count unsampled steps that have ended in the open one, with an update each: they were not reported."""
        if steps > 0:
            self._events.count_skipped(optimizer, steps)
            self._go_on_unsampled(steps, ended_ns)

    def _goes_on_unsampled(self, now_ns: int, steps: int) -> bool:
        """Return whether an unsampled step follows on another one, with nothing to do between them."""
        try:
            if not self._listeners.are_idle and self._listeners.step_ends(now_ns):
                return False
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._switch_off(error)
            return False
        return self._recording.open is None and self.number + steps < self._next_recorded and not self._pipeline.is_due

    def _go_on_unsampled(self, steps: int, now_ns: int | None = None) -> None:
        """Close the open unsampled step now, or at the time given, and open another one: each statement here costs."""
        self._gap.began_ns = self._close_unsampled(steps, now_ns=now_ns)
        self.number += 1
        self._exclusions.step_ns = 0

    def _go_on(self, began_ns: int, steps: int) -> None:
        opened, end = self._recording.open, None
        if opened is None:
            self._close_unsampled(steps)
        else:
            self.number += steps - 1
            raw = self._recording.close(opened, self.number, self._exclusions.step_ns, steps_in_one=steps)
            self._last_ns, self._ended_ns, end = self._recording.length_ns, self._recording.ended_ns, raw.end
            self._pipeline.submit(raw)
            marks = len(raw.mark_batch.raw_codes) // INTEGER_BYTES
            self.cost.end_step(marks, began_ns, counts=not opened.asked)  # after the pass, which may have measured rows
            if raw.mark_batch.skipped and not raw.warmup:  # the first steps find out which thread trains
                self._notes.warn_once(
                    "other threads call the model while it trains: their calls are not recorded, only those of the "
                    "training thread"
                )
        self.number += 1
        captures = not self._listeners.are_idle and self._listeners.take_capture()
        self._next_recorded = self.number if captures else self._controller.next_recorded(self.number)
        if self._next_recorded == self.number:
            self._begin_recorded(end, is_end=opened is not None)
        else:
            self._begin_unsampled()

    # Open.

    def _begin_unsampled(self) -> None:
        """Open an unsampled step, which begins now."""
        if self._recording.open is not None:
            self._recording.suspend()
        else:
            self.count_gap()
            self._pipeline.make_due_pass()
        self._gap.began_ns = now_ns = self.now_ns()
        self._exclusions.step_ns = 0
        self._gap.overhead_ns += max(now_ns - self._ended_ns, 0)

    def _begin_recorded(self, start: Reading, *, is_end: bool = False) -> None:
        """Open a recorded step at the reading ``start``, which may be the end of the last one; None: once attached."""
        recording = self._recording
        begun_ns: int | None = self._ended_ns
        if not is_end or recording.moved:
            start, begun_ns = self._follow_device(start, is_end=is_end), None
        if not is_end:
            self._pipeline.summarizer.open_gap = NO_GAP
        asked = not self._listeners.are_idle and self._listeners.step_begins(self.number)
        if not is_end and (note := self._controller.note_limit(self.number)) is not None:
            self._notes.add(note)
        gap = self._gap
        if not is_end:  # recorded steps in a row share a gap of nothing
            self._gap = OpenGap()
        self._exclusions.step_ns = 0
        warmup, paused = self._pipeline.took_long, self._exclusions.depth > 0
        self._pipeline.took_long = False
        opened = recording.begin(self.number, start, gap, begun_ns=begun_ns, warmup=warmup, asked=asked, paused=paused)
        if start is None:
            gap.overhead_ns += max(recording.clock.host_ns(opened.start) - self._ended_ns, 0)

    def _follow_device(self, start: Reading, *, is_end: bool) -> Reading:
        before = self._recording.clock
        start = self._recording.follow_device(start, is_end=is_end)
        if self._recording.clock is not before:
            self._pipeline.use_clock(self._recording.clock)
        return start

    def _exclude_open(self, _decision: ExcludeOpen) -> None:
        if self._recording.open is not None:
            self._recording.open.warmup = True

    def count_gap(self) -> None:
        """Have summaries count the unsampled steps since the last recorded one."""
        gap = self._gap
        self._pipeline.summarizer.open_gap = Gap(gap.steps, gap.ns, self.cost.uncharged_ns) if gap.steps else NO_GAP

    def follow(self, listener: StepListener, steps: int) -> Callable[[], None]:
        """Record the next steps and pass their numbers, the open one's first; return the function that ends this."""
        first, opened = self.number + 1, self._recording.open
        self._controller.reserve(first, steps + 1)
        self._next_recorded = first
        remove = self._listeners.add(listener)
        if opened is not None and listener(self.number) is True:
            opened.warmup = opened.asked = True

        def undo() -> None:
            self._controller.release(first, steps + 1)
            remove()

        return undo

    # Close.

    def _close_unsampled(self, steps: int = 1, most_ns: int | None = None, now_ns: int | None = None) -> int:
        """Close the open unsampled step, now or at the time given, as so many; return that time."""
        if now_ns is None:
            now_ns = self.now_ns()
        self._exclusions.split(now_ns)
        length_ns = max(now_ns - self._gap.began_ns - self._exclusions.step_ns, 0)
        if most_ns is not None:
            length_ns = min(length_ns, most_ns)
        self._gap.add(steps, length_ns)
        self._last_ns, self._ended_ns = length_ns // steps, now_ns
        self.number += steps - 1
        return now_ns

    # Excluded time.

    def _exclude(self, decision: Exclude) -> None:
        """Record nothing from now on."""
        with self.work:
            self._exclusions.open(decision)

    def _include(self, decision: Include) -> None:
        """Record again, and count the time since."""
        with self.work:
            self._exclusions.close(decision, steps=self.number - 1)

    # The end.

    def finish(self, *, patient: bool) -> None:
        """Close the open step where it is whole, and wait for the device."""
        detector = self._events.catch_up()
        if not self._events.is_off:
            self.carry_out(detector.end())
            self._end_last(detector)
        self._pipeline.finish(patient=patient)
        with self._notes.contain("memory"):  # an allocation may have failed in an unsampled step
            self._pipeline.add_memory(self._recording.memory.failures())
        note = note_missed_steps(detector, self.number - 1)
        if note is not None:
            self._notes.warn_once(note)

    def _end_last(self, detector: StepDetector) -> None:
        """Close the open step where it is whole. No unsampled step is longer than the one before: the loop may be over.

        A recorded one that is not whole is skipped.
        """
        self._events.is_off = True
        recording, opened, is_whole = self._recording, self._recording.open, detector.is_whole
        recording.open = None
        if opened is None:
            if is_whole:
                self._close_unsampled(most_ns=self._last_ns or None)
                self.number += 1
        elif is_whole:
            excluded_ns = self._exclusions.step_ns
            until = recording.end_of_loop(opened, detector.updated_at, excluded_ns, self._last_ns)
            self._pipeline.submit(recording.close(opened, self.number, excluded_ns, until=until))
            self.number += 1
        else:
            self._gap = opened.gap
            if recording.recorder.has_phase(Phase.FORWARD):
                self._notes.skipped["steps unfinished at the end"] += 1
        self.count_gap()

    def detach(self) -> None:
        """Record nothing any more, and detach all probes, whatever fails."""
        self._events.is_off = True
        self._recording.detach()

    def _switch_off(self, error: BaseException) -> None:
        logger.debug("the failure that ends the recording", exc_info=error)
        self._events.is_off, self._recording.open = True, None
        self._pipeline.resume_gc()
        with suppress(Exception):
            self._notes.warn_once(f"recording is off after {describe(error)}")
            self.detach()


ACTIONS: Final[dict[type, Callable[[TrainingSteps, Any], None]]] = {
    EndStep: TrainingSteps._end_step,
    Exclude: TrainingSteps._exclude,
    Include: TrainingSteps._include,
    ExcludeOpen: TrainingSteps._exclude_open,
}
"""The method that carries a decision out; those of ``training_hooks.ACTIONS`` carry out the others."""
