"""The steps of a run: one is open, closing it hands it on and opens the next one, or leaves some alone in between."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any

from torch import nn

from .._capture.probes import BoundaryProbe, OptimizerHooks, Placement
from .._capture.recorder import Recorder
from .._process.signals import DeferSigint, raised_by_handler
from .._resolve import RawStep
from ..devices import Clock, Memory
from ..frame import Phase
from . import lifecycle
from .pipeline import Pipeline
from .sampling import Sampling
from .training_state import TrainingState

if TYPE_CHECKING:
    from ..config import Config

logger = logging.getLogger("autoprof")


class StepTracker:
    """Open and close the steps of one session, on the training thread.

    With ``step: auto`` a step ends at the first fetch or training forward after an optimizer's step, until the first
    explicit ``end``.
    """

    def __init__(
        self,
        model: nn.Module,
        config: Config,
        recorder: Recorder,
        pipeline: Pipeline,
        *,
        clock: Clock,
        memory: Memory,
        sampling: Sampling | None = None,
        optimizers: tuple[Any, ...] = (),
        placement: Placement | None = None,
    ) -> None:
        self.work = DeferSigint()
        self.sampling = sampling or Sampling(recorder)
        self.raw: RawStep | None = None
        """The step being recorded; None in a gap."""
        self._warmup = config.sample.warmup
        self._recorder = recorder
        self._pipeline = pipeline
        self._clock = clock
        self._memory = memory
        self._placement = placement
        self.state = TrainingState(
            recorder, self.work, self._record, self.maybe_end, self._set_apart, clock=lambda: self._clock
        )
        self._boundary = BoundaryProbe(model, self.state.begin_training_forward, self.state.begin_evaluation_forward)
        self._counting = OptimizerHooks(optimizers, after=self.optimizer_stepped)
        self.auto = config.step == "auto"
        """Whether steps end without being told so."""
        self._off = not config.enabled
        self._optimizer_steps = 0
        self._paused_ns = 0
        self._number = 0
        self._work_ns = 0
        self._charged_ns = 0
        self._begins: list[Callable[[int], object]] = []

    def on_begin(self, begins: Callable[[int], object]) -> None:
        """Have this called with the number of each recorded step, before it begins; a step of which it returns True is
        kept apart from the statistics."""
        self._begins.append(begins)

    def follow(self, begins: Callable[[int], object], count: int) -> Callable[[], None]:
        """Have the next ``count`` steps recorded, the open one told of at once; return what ends that early."""
        first, count = self._number + 1, count + self.sampling.end_gap_early() + 1
        self.sampling.reserve(first, count)
        self.on_begin(begins)
        if self.raw is not None and begins(self._number) is True:
            self._set_apart()

        def undo() -> None:
            self.sampling.release(first, count)
            if begins in self._begins:
                self._begins.remove(begins)

        return undo

    def start(self) -> None:
        """Attach everything and open the first step."""
        if self.auto:
            self._counting.attach()
        self._open(self._clock.read())

    # What ends a step.

    def end(self) -> None:
        """End a step because the user says so, now and from now on."""
        if self.auto:
            self.auto = False
            self._counting.detach()
        self._end()

    def optimizer_stepped(self, *_call: Any) -> None:
        """Take word of an optimizer's step."""
        sampling = self.sampling
        if not sampling.gap_remaining:
            self._optimizer_steps += 1
        elif sampling.gap_remaining > 1:
            sampling.gap_remaining -= 1
        else:
            self._end()

    def maybe_end(self) -> None:
        """Take word of a fetch or a training forward."""
        if self.auto and self._optimizer_steps and not self.state.is_excluded:
            self._end()

    def _end(self) -> None:
        if self._off:
            return
        began = perf_counter_ns()
        try:
            with self.work:
                try:
                    self.state.resume()
                    if self.raw is not None:
                        self._end_recorded(began)
                    elif not self.sampling.gap_remaining or not self._continue_gap(began):
                        self._go_on(began)
                except BaseException as error:  # nothing of ours may end a training run
                    self._switch_off(error)
                    if not isinstance(error, Exception) or raised_by_handler(error):
                        raise
        finally:
            self._work_ns += perf_counter_ns() - began
        lifecycle.finish_termination()

    # From one step to the next.

    def _end_recorded(self, now_ns: int) -> None:
        """Go from a recorded step to the next one, or into a gap."""
        raw, (end, marks) = self.raw, self._close()
        gap = self.sampling.close(self._number, marks, self._work_ns + perf_counter_ns() - now_ns)
        if not gap:
            self._open(end)
            return
        if raw is not None:
            raw.leave_alone()
        self.raw = None
        self._boundary.detach()
        self.state.is_recording = False
        self.sampling.begin_gap(gap, max(self._optimizer_steps, 1) if self.auto else 1, inside=self.auto)
        self._optimizer_steps = 0

    def _continue_gap(self, now_ns: int) -> bool:
        """Look after what waits, or in the last step of the gap for its end; return False where it has come."""
        if self.sampling.check_gap(now_ns):
            if not self._pipeline.rest(self.sampling.gap_remaining_s()):
                self.sampling.check_after_next_step()
        elif self.auto:
            self._optimizer_steps = 1
            self._boundary.attach()
            self.state.is_recording = True
        else:
            return False
        return True

    def _go_on(self, now_ns: int) -> None:
        """Go from a gap to the next recorded step."""
        steps, elapsed_ns = self.sampling.end_gap(now_ns, self._work_ns)
        self._number += steps
        note = self.sampling.change(self._number + 1)
        if note is not None:
            self._pipeline.say(note)
        self._open(None, steps, elapsed_ns)
        if self.raw is not None:
            self._pipeline.put_off(self._clock.host_ns(self.raw.start))

    def _open(self, start: Any, gap_steps: int = 0, gap_ns: int = 0) -> None:
        """Begin the step at the reading ``start``, which the step before ends with; after a gap when all is put on."""
        if self._placement is not None and self._placement.moved():
            start = self._follow_device(self._placement, start)
        self._number += 1
        self._optimizer_steps = 0
        apart = [begins(self._number) for begins in self._begins] if self._begins else ()
        self.raw = RawStep(
            step=self._number,
            start_unix_ns=time_ns(),
            serial=self._recorder.serial,
            clock=self._clock,
            start=start,
            settles=self.sampling.settling,
            warmup=self._pipeline.metrics.took_long() or self._number <= self._warmup or True in apart,
            gap_steps=gap_steps,
            gap_ns=gap_ns,
        )
        self.state.is_recording = True
        if not self.state.is_excluded:
            self._boundary.attach()
            self.sampling.switch(True)
        if start is None:
            self.raw.start = self._clock.read()

    def _close(self) -> tuple[Any, int]:
        """Close the recorded step and hand it on; return the reading that ends it, and how many marks it has."""
        end, raw = self._clock.read(), self.raw
        assert raw is not None
        raw.end = end
        raw.taken = self._recorder.take()
        raw.memory = self._memory.at_step_end()
        raw.overhead_ns, self._charged_ns = self._work_ns - self._charged_ns, self._work_ns
        self._pipeline.submit(raw)
        return end, raw.taken.mark_count

    def _follow_device(self, placement: Placement, start: Any) -> Any:
        """Read the clock of the device that the model has moved to; return the step's start on it."""
        before = self._clock, self._clock.device_index
        note = placement.follow()
        if note is not None:
            self._pipeline.say(note)
        self._clock = clock = self._recorder.clock
        if (clock, clock.device_index) == before:
            return start
        if self.raw is None:
            before[0].release(() if start is None else (start,))
        else:
            self.raw.leave_alone()
        if clock is not before[0]:
            self._pipeline.calibrate(clock)
        elif clock.device_index is not None:
            self._memory = self._memory.on(clock.device_index)
        return clock.read()

    # Pauses, and the end.

    def _record(self, on: bool) -> bool:
        """Have the open step recorded or not, as what comes belongs to it or not; say whether there is one."""
        now_ns = perf_counter_ns()
        if on:
            self.sampling.skip(now_ns - self._paused_ns)
        else:
            self._paused_ns = now_ns
        if self.raw is None or self._off:
            return False
        self.sampling.switch(on)
        return True

    def _set_apart(self) -> None:
        if self.raw is not None:
            self.raw.warmup = True

    def finish(self, *, patient: bool) -> None:
        """Close the open step where it is whole, and wait for the device."""
        self._off = True
        if self.sampling.gap_remaining:
            self._pipeline.left_alone(*self.sampling.abort_gap())
        if self.raw is not None and self.auto and self._optimizer_steps:
            self._close()
        elif self.raw is not None and self._recorder.has_phase(Phase.FORWARD):
            self._pipeline.skipped["steps unfinished at the end"] = 1
        self._pipeline.finish(patient=patient)

    def detach(self) -> None:
        """Take everything off, whatever fails."""
        self._off = True
        self.sampling.gap_remaining = 0
        for undo in (
            self.state.resume,
            self.sampling.detach_all,
            self._boundary.detach,
            self._counting.detach,
            self._recorder.stop,
        ):
            try:
                undo()
            except Exception as error:
                if raised_by_handler(error):
                    raise
        self.raw = None

    def _switch_off(self, error: BaseException) -> None:
        logger.debug("what switched recording off", exc_info=error)
        self.raw = None
        self._off = True
        self._pipeline.cut_short()
        with suppress(Exception):
            self._pipeline.say(f"recording is off after {type(error).__name__}: {error}")
            self.sampling.switch(False)
            self._boundary.detach()
            self._recorder.stop()
