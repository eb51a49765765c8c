"""A run under observation: ``Session`` closes each step, hands it on, and undoes everything at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from . import lifecycle
from .clocks import Clock
from .delivery import Delivery
from .errors import SessionError
from .memory import Memory
from .probes import BoundaryProbe, Handle, Placement, Probe, TimedLoader
from .recorder import PAUSE, UNPAUSE, Recorder, activate
from .resolve import RawStep
from .signals import OwnWork, raised_by_handler
from .span import Phase
from .summary import Summary

if TYPE_CHECKING:
    from pathlib import Path

    from .config import Config
    from .sinks import Sink

logger = logging.getLogger("autoprof")
Loader = TypeVar("Loader")


class Session:
    """What ``autoprof.instrument`` returns. Use it from the training thread; a context manager closes it."""

    def __init__(
        self,
        model: nn.Module,
        config: Config,
        recorder: Recorder,
        delivery: Delivery,
        *,
        clock: Clock,
        memory: Memory,
        probes: Sequence[Probe] = (),
        placement: Placement | None = None,
    ) -> None:
        self._work = OwnWork()
        self._model = model
        self._config = config
        self._recorder = recorder
        self._delivery = delivery
        self._clock = clock
        self._memory = memory
        self._probes = probes
        self._placement = placement
        self._data_code = recorder.label("Data", None, Phase.DATA)
        self._handle = Handle()
        self._boundary: BoundaryProbe | None = None
        self._auto = config.step == "auto"
        self._closed = self._ended = not config.enabled
        self._off = False
        self._optimizer_stepped = False
        self._attached = False
        self._paused = 0
        self._number = 0
        self._raw: RawStep | None = None
        self._work_ns = 0

    def start(self, sinks: Iterable[Sink], handles: Iterable[Handle]) -> None:
        """Attach everything and open the first step. Called once, by ``instrument``."""
        self._delivery.open(sinks)
        for handle in handles:
            self._handle.add(handle.remove)
        if self._auto:
            self._boundary = BoundaryProbe(self._model, self._maybe_end_step)
            self._handle.add(self._boundary.remove)
        self._open_step(self._clock.read())

    @property
    def busy(self) -> bool:
        """Whether the session is in the middle of its own work."""
        return self._work.depth > 0

    @property
    def folder(self) -> Path | None:
        """The folder of this run, or None when it writes no files."""
        folder = self._delivery.folder
        return None if folder is None else folder.path

    # The steps.

    def step(self) -> None:
        """End a step. The first call makes the session manual. Raises ``SessionError`` after ``close``."""
        if self._closed:
            if self._config.enabled:
                raise SessionError("session.step: this session is closed; instrument the model again to go on")
            return
        if self._auto:
            self._auto = False
            if self._boundary is not None:
                self._boundary.remove()
        self._end_step()

    def optimizer_stepped(self) -> None:
        """Take word of an optimizer's step; without ``step()``, the next fetch or training forward ends the step."""
        self._optimizer_stepped = True

    def _maybe_end_step(self) -> None:
        if self._auto and self._optimizer_stepped and not self._paused and not self._closed:
            self._end_step()

    def _end_step(self) -> None:
        if self._off:
            return
        began = time.perf_counter_ns()
        with self._work:
            try:
                self._open_step(self._close_step())
            except BaseException as error:  # nothing of ours may end a training run
                self._switch_off(error)
                if not isinstance(error, Exception) or raised_by_handler(error):
                    raise
            finally:
                self._work_ns += time.perf_counter_ns() - began
        lifecycle.finish_termination()

    def _open_step(self, start: Any) -> None:
        """Begin the step at the reading ``start``, which the step before ends with."""
        if self._placement is not None and self._placement.moved():
            start = self._follow_device(self._placement, start)
        sample, number = self._config.sample, self._number + 1
        self._number = number
        self._optimizer_stepped = False
        if (number - 1) % sample.every:
            self._raw = None
            self._clock.release((start,))
        else:
            self._raw = RawStep(
                step=number,
                start_unix_ns=time.time_ns(),
                serial=self._recorder.serial,
                clock=self._clock,
                start=start,
                warmup=number <= sample.warmup,
            )
        if not self._paused:
            self._record(self._raw is not None)

    def _close_step(self) -> Any:
        """Close the open step, hand it on, and return the reading that ends it."""
        end, raw = self._clock.read(), self._raw
        taken = self._recorder.take()
        if raw is None:
            self._delivery.unsampled_steps += 1
            if self._clock.device_type is not None:
                self._clock.release([reading for reading in taken.readings if not isinstance(reading, int)])
            return end
        raw.end = end
        raw.taken = taken
        raw.memory = self._memory.at_step_end()
        raw.overhead_ns, self._work_ns = self._work_ns, 0
        self._delivery.submit(raw)
        return end

    def _record(self, on: bool) -> None:
        """Attach or detach what records inside a step."""
        if on != self._attached:
            self._attached = on
            activate(self._recorder, on)
            for probe in self._probes:
                (probe.attach if on else probe.detach)()

    def _follow_device(self, placement: Placement, start: Any) -> Any:
        """Read the clock of the device that the model has moved to; return the step's start on it."""
        before = self._clock, self._clock.home
        note = placement.follow()
        if note is not None:
            self._delivery.say(note)
        self._clock = clock = self._recorder.clock
        if (clock, clock.home) == before:
            return start
        if clock is not before[0]:
            self._delivery.calibrate(clock)
        return clock.read()  # the other reading still ends the step before

    def _switch_off(self, error: BaseException) -> None:
        logger.debug("what switched recording off", exc_info=error)
        self._raw = None
        self._off = True
        with suppress(Exception):
            self._delivery.say(f"recording is off after {type(error).__name__}: {error}")
            self._record(False)
            self._recorder.stop()

    # What else the user's loop calls.

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Charge what happens inside (validation, saving) to no step."""
        with self._work:
            self._paused += 1
            if self._paused == 1 and self._raw is not None and not self._closed:
                self._recorder.mark(PAUSE)
                self._record(False)
        try:
            yield
        finally:
            with self._work:
                self._paused -= 1
                if not self._paused and self._raw is not None and not self._closed:
                    self._record(True)
                    self._recorder.mark(UNPAUSE)

    def loader(self, iterable: Loader) -> Loader:
        """Wrap a loader so that the wait for each batch is a ``data`` span; in all else it stays the loader it was."""
        wrapped: Any = TimedLoader(iterable, self._recorder, self._data_code, self._maybe_end_step)
        return wrapped  # type: ignore[no-any-return]

    def log(self, **scalars: Any) -> None:
        """Attach loss, lr, … to the open step: numbers, or tensors of one element, read when the step is resolved."""
        raw = self._raw
        if raw is None or self._closed:
            return
        for name, value in scalars.items():
            try:
                raw.log(name, value)
            except (TypeError, ValueError, RuntimeError) as error:
                self._delivery.say(f"session.log: {name} is left out ({error}); it must be a number")

    def summary(self) -> Summary:
        """Return the statistics so far (of the whole run after ``close``)."""
        if not self._closed and not self.busy:
            with self._work:
                self._delivery.deliver()
            lifecycle.finish_termination()
        return self._delivery.summary()

    # The end.

    def close(self) -> None:
        """Wait for the device, write everything out, and take off every hook. Idempotent."""
        self.end("closed")

    def end(self, how: str) -> None:
        """Close the session and note in ``run.json`` how it ended; what a Ctrl-C cut short, a second call finishes."""
        if self._ended:
            return
        try:
            self._closed = True
            self._finish_steps(patient=how != lifecycle.TERMINATED)
        except Exception as error:
            self._delivery.say(f"the last steps are lost after {type(error).__name__}: {error}")
            if raised_by_handler(error):
                raise
        finally:
            with self._work:
                self._detach()
                self._delivery.close(how)
                self._memory.close()
                lifecycle.release(self)
                self._ended = True
        lifecycle.finish_termination()

    def _finish_steps(self, *, patient: bool) -> None:
        if self._raw is not None and self._auto and self._optimizer_stepped:
            self._close_step()
        elif self._raw is not None and self._recorder.holds(Phase.FORWARD):
            self._delivery.skipped["steps unfinished at the end"] = 1
        self._delivery.finish(patient=patient)

    def _detach(self) -> None:
        activate(self._recorder, False)
        for undo in [*(probe.detach for probe in self._probes), self._handle.remove, self._recorder.stop]:
            try:
                undo()
            except Exception as error:
                if raised_by_handler(error):
                    raise
        self._raw = None

    def abandon(self) -> None:
        """Record nothing more and touch no file: this process is a fork of the session's own."""
        self._closed = self._ended = True
        self._delivery.abandon()
        self._detach()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end("closed" if kind is None else f"error: {kind.__name__}: {error}")
