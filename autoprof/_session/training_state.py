"""Tell training from the time that belongs to no step: validation, checkpoint saving, a pause.

Validation is recognised by forwards of the model in ``eval`` mode. It lasts from the first of them, or from the fetch
of its batch, until the model trains again, a loader is asked that feeds training, or the step ends. Which loader feeds
what is learnt from the forward that follows its fetch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from threading import get_ident
from typing import Any, Final

import torch

from .._capture.marks import INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE, PAUSE, THREAD, UNPAUSE, VALUE_KINDS
from .._capture.probes import ValidationEnd
from .._capture.recorder import Recorder
from .._process.signals import DeferSigint
from ..devices import Clock
from ..frame import Phase
from ..summary import Excluded

LOADERS: Final = 64
"""Loaders remembered at a time."""


class Feeds(Enum):
    """What the batches of a loader are for."""

    TRAINING = "training"
    VALIDATION = "validation"
    BOTH = "both"


VALIDATION: Final = "validation"


class TrainingState:
    """Tell training from what is apart, for one session. Its methods are called on the training thread.

    ``record`` has a recorded step record or not, and says whether there is one. ``end_step`` ends the step where
    sessions end steps by themselves, ``set_apart`` keeps the open step out of the statistics.
    """

    def __init__(
        self,
        recorder: Recorder,
        work: DeferSigint,
        record: Callable[[bool], bool],
        end_step: Callable[[], None],
        set_apart: Callable[[], None],
        *,
        clock: Callable[[], Clock],
    ) -> None:
        self._recorder = recorder
        self._work = work
        self._record = record
        self._end_step = end_step
        self._set_apart = set_apart
        self._clock = clock
        self.is_recording = True
        """Whether the open step is recorded; fetches in unsampled steps need not be reported."""
        self._paused = 0
        self._forward_calls: list[Callable[[], None]] = []
        self._spent: dict[str, list[int]] = {}
        self._names: list[str] = []
        self._began: int | None = None
        self._graded = False
        self._trained = False
        self._trains_in_eval = False
        self._fed: dict[int, tuple[weakref.ref[Any], Feeds]] = {}
        self._last: Any = None
        self._validation_end = ValidationEnd(self.report_backward)

    @property
    def is_excluded(self) -> bool:
        """Whether what happens now is charged to no step."""
        return self._paused > 0

    def spent(self) -> tuple[Excluded, ...]:
        """Return what has been kept apart so far, in order of first appearance."""
        return tuple(Excluded(name, calls, ns) for name, (calls, ns) in self._spent.items())

    @contextmanager
    def exclude(self, name: str) -> Iterator[None]:
        """Exclude the time inside from steps, under this name; validation inside changes the name to its own."""
        outermost = not self.is_excluded
        self._names.append(name)
        began = self._pause()
        try:
            yield
        finally:
            ended, name = self._go_on(), self._names.pop()
            if outermost:
                self._spend(name, ended - began)
            elif self._began is not None and not self._names:  # saving in the middle of validation is no part of it
                self._spend(name, ended - began)
                self._began += ended - began

    def _spend(self, name: str, ns: int) -> None:
        spent = self._spent.setdefault(name, [0, 0])
        spent[0] += 1
        spent[1] += max(ns, 0)

    # Events that probes report (``probes.StepEvents``).

    def on_training_forward(self, call: Callable[[], None]) -> None:
        """Have a function called at each training forward of the model."""
        self._forward_calls.append(call)

    def begin_training_forward(self) -> None:
        """Called before each training forward of the model."""
        self._trained = True
        if self._names or self._last is not None or self._began is not None:
            self._train()
        else:
            self._end_step()
        for call in self._forward_calls:
            call()

    def _train(self) -> None:
        if self._names:
            return
        if self._last is not None:
            self._learn(Feeds.TRAINING)
            self._last = None
        if self._began is not None:
            self.resume()
        self._end_step()

    def begin_evaluation_forward(self) -> None:
        """Called before each forward in ``eval`` mode: validation, unless this run trains that way."""
        graded = torch.is_grad_enabled()
        if graded and (self._trains_in_eval or not self._trained):
            self._train()
        elif self._names:
            self._names[-1] = VALIDATION
        else:
            self._graded = self._graded or graded
            if self._began is None:
                feeds = self._feeds(self._last)
                self._begin(retract=feeds is None or feeds is Feeds.VALIDATION)
            if self._last is not None:
                self._learn(Feeds.VALIDATION)

    def report_fetch(self, source: Any, *, explicit: bool) -> None:
        """Called before each fetch of a batch; ``explicit`` loaders are those given to ``session.loader``."""
        if self._names:
            return
        self._last, feeds = source, self._feeds(source)
        if feeds is Feeds.VALIDATION:
            self._begin(retract=False)
            return
        if feeds is Feeds.TRAINING:
            self.resume()
        if feeds is Feeds.TRAINING or explicit:
            self._end_step()

    def report_mode(self, training: bool) -> None:
        """Called by ``model.train()`` and ``model.eval()``, the only signs of validation in unsampled steps."""
        if self.is_recording or self._names:
            return
        if training:
            self.resume()
        else:
            self._begin(retract=False)

    def report_backward(self) -> None:
        """Called before a backward pass during validation, which is over, or never was validation."""
        if self._graded and not self._trains_in_eval:
            self._trains_in_eval = True
            self._set_apart()
        self.resume()

    def resume(self) -> None:
        """End what was taken for validation."""
        if self._began is not None:
            began, self._began, self._graded = self._began, None, False
            self._validation_end.detach()
            self._spend(VALIDATION, self._go_on() - began)

    def _begin(self, *, retract: bool) -> None:
        if self._began is None:
            self._began = self._pause(self._retract() if retract else None)
            self._validation_end.attach()

    def _pause(self, since: Any = None) -> int:
        """Charge the step with nothing from now on, or from a reading in the buffer; return the host's time of it."""
        with self._work:
            self._paused += 1
            try:
                begins = self._paused == 1 and self._record(False)
                return self._read(PAUSE, begins) if since is None else self._clock().host_ns(since)
            except Exception:
                self._recorder.handle_failure("pauses")
                return 0

    def _go_on(self) -> int:
        """Go on with the step; return the host's time."""
        with self._work:
            self._paused -= 1
            try:
                return self._read(UNPAUSE, not self._paused and self._record(True))
            except Exception:
                self._recorder.handle_failure("pauses")
                return 0

    def _read(self, code: int, marks: bool) -> int:
        clock = self._clock()
        reading = clock.read()
        now = clock.host_ns(reading)
        if marks:
            self._recorder.append(code, reading, get_ident())
        else:
            clock.release((reading,))
        return now

    # What belongs to a stretch though it came before it was known.

    def _feeds(self, source: Any) -> Feeds | None:
        known = self._fed.get(id(source))
        return known[1] if known is not None and known[0]() is source else None

    def _learn(self, feeds: Feeds) -> None:
        """Remember what the loader that was asked last is for."""
        source = self._last
        known = self._feeds(source)
        if known is feeds or known is Feeds.BOTH:
            return
        if len(self._fed) >= LOADERS:
            self._fed = {key: entry for key, entry in self._fed.items() if entry[0]() is not None}
        if len(self._fed) < LOADERS or known is not None:
            with suppress(TypeError):  # a list has no weak references; it is new to us each time
                self._fed[id(source)] = weakref.ref(source), feeds if known is None else Feeds.BOTH

    def _retract(self) -> Any:
        """Let the fetches and copies just made be a pause already; return the reading of the first one's begin."""
        buffer, begin = self._recorder.buffer, None
        end = len(buffer)
        while (start := self._ends_a_fetch(end)) is not None:
            for at in range(start, end, 2):
                beside = at and buffer[at - 2] & KIND_MASK == THREAD
                if not beside and buffer[at] & KIND_MASK not in VALUE_KINDS:
                    buffer[at] = PAUSE
            begin, end = buffer[start + 1], start
        return begin

    def _ends_a_fetch(self, end: int) -> int | None:
        """Return where the span begins whose end is the mark before ``end``, if it is of a fetch or a copy."""
        buffer, labels = self._recorder.buffer, self._recorder.labels
        if end < 4 or buffer[end - 2] & KIND_MASK != LEAVE:
            return None
        index = buffer[end - 2] & ~KIND_MASK
        if labels[index >> KIND_BITS & INDEX_MASK].phase not in (Phase.DATA, Phase.H2D):
            return None
        depth = 0
        for at in range(end - 2, -1, -2):
            if buffer[at] & ~KIND_MASK == index:
                depth += 1 if buffer[at] & KIND_MASK == LEAVE else -1
                if not depth:
                    return at
        return None
