"""Spans of ``optimizer.step``; the time of a closure belongs to the training step, and not to the optimizer.

A class around an optimizer, as Lookahead, is timed as a whole once it was seen in the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import wrapt

from ..base.frame import OPTIMIZER_NAME, Phase
from ..base.process.replace import Attribute, Replacement
from ..capture.hooks.optimizer_hooks import ModelOptimizers, OptimizerHooks, wrapping_class
from ..capture.marks.codes import ENTER, LEAVE, RESUME
from ..capture.recorder import Recorder
from ._base import ProbeFactory


class OptimizerProbe(OptimizerHooks):
    """Mark the steps of the optimizers that concern the model."""

    def __init__(self, recorder: Recorder, optimizers: ModelOptimizers) -> None:
        super().__init__(before=self._enter, after=self._leave)
        self._recorder = recorder
        self._optimizers = optimizers
        self._code = recorder.label(OPTIMIZER_NAME, None, Phase.OPTIMIZER)
        self._inside = 0
        """The steps whose begin is marked and whose end is not."""
        self._entered = 0
        """The optimizer whose step was marked last, by id, until its end."""
        self._seen: WeakSet[Any] = WeakSet()
        """The optimizers of which it is known whether there is a class around them."""
        self._wrappers: list[Replacement] = []
        """The steps of the classes around them."""

    def attach(self) -> None:
        """Hook the optimizers; a step that runs now is not marked."""
        if not self._attached:
            self._inside = 0
        super().attach()
        for wrapper in self._wrappers:
            wrapper.listen(self)

    def detach(self) -> None:
        """Remove the hooks; the replacements of the classes around optimizers stay, idle."""
        super().detach()
        for wrapper in self._wrappers:
            wrapper.ignore(self)

    def remove(self) -> None:
        self.detach()
        for wrapper in self._wrappers:
            wrapper.release(self)
        self._wrappers.clear()
        self._before = self._after = None  # bound methods, which lead back to the probe

    def _enter(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
        """Mark the begin; return the arguments of the step where they have a closure, which suspends the span."""
        optimizers = self._optimizers
        if optimizers.given and not optimizers.trains(optimizer):
            return None
        if optimizer not in self._seen:
            self._look_around(optimizer)
        self._entered = id(optimizer)
        if len(args) == 1 and not kwargs:  # without a closure
            self._inside += 1
            self._recorder.mark(self._code | ENTER)
            return None
        return self.enter(args, kwargs)

    def _look_around(self, optimizer: Any) -> None:
        """Time the class around an optimizer from its next step on."""
        self._seen.add(optimizer)
        wrapping = wrapping_class(optimizer)
        if wrapping is not None:
            wrapper = _STEPS.setdefault(wrapping, Replacement(Attribute(wrapping, "step"), _call_around))
            wrapper.hold(self)
            wrapper.listen(self)
            self._wrappers.append(wrapper)

    def enter(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
        """Called before a step with its arguments, the optimizer first."""
        self._inside += 1
        self._recorder.mark(self._code | ENTER)
        if len(args) > 1 and callable(args[1]):
            return (args[0], wrapt.FunctionWrapper(args[1], self._suspended), *args[2:]), kwargs
        if callable(closure := kwargs.get("closure")):
            return args, {**kwargs, "closure": wrapt.FunctionWrapper(closure, self._suspended)}
        return None

    def _suspended(self, closure: Callable[..., Any], _of: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._attached:
            return closure(*args, **kwargs)
        self._recorder.mark(self._code | LEAVE)
        try:
            return closure(*args, **kwargs)
        finally:
            if self._attached:
                self._recorder.mark(self._code | RESUME)

    def _leave(self, optimizer: Any, *_call: Any) -> None:
        entered, self._entered, optimizers = self._entered, 0, self._optimizers
        if self._inside and (entered == id(optimizer) or not optimizers.given or optimizers.trains(optimizer)):
            self._inside -= 1
            self._recorder.mark(self._code | LEAVE)

    def leave(self) -> None:
        if self._inside:
            self._inside -= 1
            self._recorder.mark(self._code | LEAVE)


def _call_around(step: Callable[..., Any], listeners: list[OptimizerProbe]) -> Callable[..., Any]:
    """Return a ``step`` that calls the probes around each call."""

    @wraps(step)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        entered = listeners[:]
        for probe in entered:
            args, kwargs = probe.enter(args, kwargs) or (args, kwargs)  # type: ignore[assignment]
        try:
            return step(*args, **kwargs)
        finally:
            for probe in entered:
                probe.leave()

    return wrapper


_STEPS: WeakKeyDictionary[type, Replacement] = WeakKeyDictionary()
"""The replaced steps of classes around optimizers."""


PROBE = ProbeFactory(lambda context: OptimizerProbe(context.recorder, context.optimizers))
