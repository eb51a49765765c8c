"""Spans of ``optimizer.step``."""

from __future__ import annotations

from typing import Any

from .._capture.marks import ENTER, LEAVE
from .._capture.probes.optimizer_hooks import OptimizerHooks
from .._capture.recorder import Recorder
from ..frame import Phase
from ._base import ProbeContext, ProbeFactory


class OptimizerProbe(OptimizerHooks):
    """Mark the steps of these optimizers, or of every torch optimizer of the process when none are given."""

    def __init__(self, recorder: Recorder, optimizers: tuple[Any, ...]) -> None:
        super().__init__(optimizers, before=self._enter, after=self._leave)
        self._recorder = recorder
        self._code = recorder.label("Optimizer", None, Phase.OPTIMIZER)

    def _enter(self, *_call: Any) -> None:
        self._recorder.mark(self._code | ENTER)

    def _leave(self, *_call: Any) -> None:
        self._recorder.mark(self._code | LEAVE)


def _make(context: ProbeContext) -> OptimizerProbe:
    return OptimizerProbe(context.recorder, context.optimizers)


PROBE = ProbeFactory(_make)
