"""Spans of ``optimizer.step``; the time of a closure belongs to the training step, and not to the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import wrapt

from .._capture.hooks.optimizer_hooks import ModelOptimizers, OptimizerHooks
from .._capture.marks.codes import ENTER, LEAVE, RESUME
from .._capture.recorder import Recorder
from ..frame import Phase
from ._base import ProbeContext, ProbeFactory


class OptimizerProbe(OptimizerHooks):
    """Mark the steps of the optimizers that concern the model."""

    def __init__(self, recorder: Recorder, optimizers: ModelOptimizers) -> None:
        super().__init__(before=self._enter, after=self._leave)
        self._recorder = recorder
        self._optimizers = optimizers
        self._code = recorder.label("Optimizer", None, Phase.OPTIMIZER)
        self._inside = 0
        """The steps whose begin is marked and whose end is not."""

    def attach(self) -> None:
        """Hook the optimizers; a step that runs now is not marked."""
        if not self._attached:
            self._inside = 0
        super().attach()

    def remove(self) -> None:
        """Remove the hooks for good."""
        super().remove()
        self._before = self._after = None  # bound methods, which lead back to the probe

    def _enter(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
        """Mark the begin; return the arguments of the step where they have a closure, which suspends the span."""
        if not self._optimizers.concern(optimizer):
            return None
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
        if self._inside and self._optimizers.concern(optimizer):
            self._inside -= 1
            self._recorder.mark(self._code | LEAVE)


def _make(context: ProbeContext) -> OptimizerProbe:
    return OptimizerProbe(context.recorder, context.optimizers)


PROBE = ProbeFactory(_make)
