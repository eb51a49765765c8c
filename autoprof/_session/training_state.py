"""Tell training from the time that belongs to no step: validation, checkpoint saving, a pause.

Validation is recognised by forwards of the model in ``eval`` mode. It lasts from the first of them, or from the fetch
of its batch, until the model trains again, a loader is asked that feeds training, or the step ends. The use of
a loader's batches is learnt from the forward that follows its fetch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn

from .._capture.marks import INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE, PAUSE, THREAD, VALUE_KINDS
from .._capture.probes import BoundaryProbe, OptimizerHooks, unwatch_backward, watch_backward
from .._capture.recorder import Recorder
from .._process import lifecycle
from .._process.failures import contain, ignore
from ..frame import Phase
from .observers import ExcludedTime
from .sampling import Sampling
from .step_tracker import Following, StepTracker

LOADERS: Final = 64
"""Loaders remembered at a time."""
VALIDATION: Final = "validation"
# Once: looking a member of an enumeration up costs as much as a call, and this is done at the end of each step.
_RECORDED, _AFTER_GAP, _NOTHING = Following.RECORDED, Following.AFTER_GAP, Following.NOTHING


class Feeds(Enum):
    """The use of a loader's batches."""

    TRAINING = "training"
    VALIDATION = "validation"
    BOTH = "both"


class TrainingState:
    """Receive the events of the user's program, and decide which time belongs to a step and where a step ends.

    With ``auto`` a step ends at the first fetch or training forward after an optimizer's step, until the first call
    of ``step``. All methods are called on the training thread. Hooks on the model and on optimizers hold this object;
    it finds the hooks in torch's tables, and holds none of them.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: tuple[Any, ...],
        recorder: Recorder,
        sampling: Sampling,
        steps: StepTracker,
        excluded: ExcludedTime,
        *,
        auto: bool = True,
        training_forward_calls: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._recorder = recorder
        self._sampling = sampling
        self.steps = steps
        self._excluded = excluded
        self.auto = auto
        """Whether steps end without a call of ``session.step``."""
        self.is_recording = True
        """Whether fetches and forwards matter: the open step is recorded, or the next one will be."""
        self._training_forward_calls = tuple(training_forward_calls)
        self._watches_forwards = False
        self._optimizer_steps = 0
        self._names: list[str] = []
        self._began: int | None = None
        self._graded = False
        self._trained = False
        self._trains_in_eval = False
        self._fed: dict[int, tuple[weakref.ref[Any], Feeds]] = {}
        self._last: Any = None
        self._thread = get_ident()

    @property
    def is_excluded(self) -> bool:
        """Whether time belongs to no step now."""
        return self.steps.paused

    def start(self) -> None:
        """Listen, and open the first step."""
        if self.auto:
            self._optimizer_hooks().attach()
        self._listen(True)
        self.steps.start()

    @contextmanager
    def exclude(self, name: str) -> Iterator[None]:
        """Charge the block to no step, but to this name; validation inside is counted under its own name."""
        outermost = not self.is_excluded
        self._names.append(name)
        began = self.steps.pause()
        try:
            yield
        finally:
            ended, name = self.steps.resume(), self._names.pop()
            if outermost:
                self._excluded.add(name, ended - began)
            elif self._began is not None and not self._names:  # saving during validation is no part of it
                self._excluded.add(name, ended - began)
                self._began += ended - began

    # Events.

    def step(self) -> None:
        """End the step by a call of the program; from now on steps end only by such calls."""
        if self.auto:
            self.auto = False
            self._optimizer_hooks().detach()
        self._end_step()

    def optimizer_stepped(self, *_call: Any) -> None:
        """Called after each optimizer step."""
        sampling = self._sampling
        if not sampling.gap_remaining:
            self._optimizer_steps += 1
        elif sampling.gap_remaining > 1:
            sampling.gap_remaining -= 1
        else:
            self._end_step()

    def begin_training_forward(self) -> None:
        """Called before each forward of the model in ``train`` mode."""
        self._trained = True
        if self._names or self._last is not None or self._began is not None:
            self._train()
        else:
            self._end_if_stepped()
        for call in self._training_forward_calls:
            call()

    def begin_evaluation_forward(self) -> None:
        """Called before each forward in ``eval`` mode: validation, unless this run trains in that mode."""
        graded = torch.is_grad_enabled()
        if graded and (self._trains_in_eval or not self._trained):
            self._train()
        elif self._names:
            self._names[-1] = VALIDATION
        else:
            self._graded = self._graded or graded
            if self._began is None:
                feeds = self._feeds(self._last)
                self._begin_validation(retract=feeds is None or feeds is Feeds.VALIDATION)
            if self._last is not None:
                self._learn(Feeds.VALIDATION)

    def report_fetch(self, source: Any, *, explicit: bool) -> None:
        """Called before a batch is fetched; ``explicit`` loaders are those given to ``session.loader``."""
        if self._names:
            return
        self._last, feeds = source, self._feeds(source)
        if feeds is Feeds.VALIDATION:
            self._begin_validation(retract=False)
            return
        if feeds is Feeds.TRAINING:
            self.end_validation()
        if feeds is Feeds.TRAINING or explicit:
            self._end_if_stepped()

    def report_mode(self, training: bool) -> None:
        """Called by ``model.train()`` and ``model.eval()``: the only event in unsampled steps."""
        if self.is_recording or self._names:
            return
        if training:
            self.end_validation()
        else:
            self._begin_validation(retract=False)

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Called before each backward pass during validation: it is over, or was training in ``eval`` mode."""
        if get_ident() == self._thread:
            if self._graded and not self._trains_in_eval:
                self._trains_in_eval = True
                self.steps.exclude_open()
            self.end_validation()
        return False

    def leave(self) -> None:
        """Never called: ``enter`` returns False."""

    # Decisions.

    def _train(self) -> None:
        if self._names:
            return
        if self._last is not None:
            self._learn(Feeds.TRAINING)
            self._last = None
        if self._began is not None:
            self.end_validation()
        self._end_if_stepped()

    def _end_if_stepped(self) -> None:
        if self.auto and self._optimizer_steps and not self.is_excluded:
            self._end_step()

    def _end_step(self) -> None:
        began_ns, following = perf_counter_ns(), _NOTHING
        with self.steps.work:
            try:
                if self._began is not None:
                    self.end_validation()
                following = self.steps.end(began_ns, self._optimizer_steps if self.auto else None)
            finally:
                self._optimizer_steps = 1 if following is _AFTER_GAP else 0
                recording = following is _RECORDED or following is _AFTER_GAP
                if recording is not self.is_recording or recording is not self._watches_forwards:
                    self._listen(recording)
        lifecycle.finish_termination()

    def end_validation(self) -> None:
        """End validation, if the session is in it."""
        if self._began is not None:
            began, self._began, self._graded = self._began, None, False
            unwatch_backward(self)
            self._excluded.add(VALIDATION, self.steps.resume() - began)

    def _begin_validation(self, *, retract: bool) -> None:
        if self._began is None:
            self._began = self.steps.pause(self._retract() if retract else None)
            self._thread = get_ident()
            watch_backward(self)

    # Hooks.

    def _listen(self, on: bool) -> None:
        """Attach or detach the hook on the model's forwards."""
        self.is_recording = on
        if on and not self._watches_forwards:
            self._watches_forwards = True
            self._forward_hook().attach()
        elif self._watches_forwards and not on:
            self._forward_hook().detach()
            self._watches_forwards = False  # last, so that an interrupted detach is repeated

    def _forward_hook(self) -> BoundaryProbe:
        return BoundaryProbe(self._model, self.begin_training_forward, self.begin_evaluation_forward)

    def _optimizer_hooks(self) -> OptimizerHooks:
        return OptimizerHooks(self._optimizers, after=self.optimizer_stepped)

    def finish(self, *, patient: bool) -> None:
        """Close the open step where it is whole, and wait for the device."""
        self.steps.finish(whole=self.auto and self._optimizer_steps > 0, patient=patient)

    def detach(self) -> None:
        """Remove every hook, whatever fails."""
        with contain(ignore):
            self.end_validation()
        self.is_recording = False
        for remove in (partial(unwatch_backward, self), self._forward_hook().detach, self._optimizer_hooks().detach):
            with contain(ignore):
                remove()
        self.steps.detach()

    # Marks that belong to validation, made before it was recognised.

    def _feeds(self, source: Any) -> Feeds | None:
        known = self._fed.get(id(source))
        return known[1] if known is not None and known[0]() is source else None

    def _learn(self, feeds: Feeds) -> None:
        """Remember the use of the loader of the last fetch."""
        source = self._last
        known = self._feeds(source)
        if known is feeds or known is Feeds.BOTH:
            return
        if len(self._fed) >= LOADERS:
            self._fed = {key: entry for key, entry in self._fed.items() if entry[0]() is not None}
        if len(self._fed) < LOADERS or known is not None:
            with suppress(TypeError):  # a list has no weak references, so its use is not remembered
                self._fed[id(source)] = weakref.ref(source), feeds if known is None else Feeds.BOTH

    def _retract(self) -> Any:
        """Turn the marks of the last fetches and copies into a pause; return the reading at its begin."""
        buffer, begin = self._recorder.buffer, None
        end = len(buffer)
        while (start := self._ends_a_fetch(end)) is not None:
            for at in range(start, end, 2):
                other_thread = at and buffer[at - 2] & KIND_MASK == THREAD
                if not other_thread and buffer[at] & KIND_MASK not in VALUE_KINDS:
                    buffer[at] = PAUSE
            begin, end = buffer[start + 1], start
        return begin

    def _ends_a_fetch(self, end: int) -> int | None:
        """Return the index of the begin of the span that ends before ``end``, if it is a fetch or a copy."""
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
