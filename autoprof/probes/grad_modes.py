"""Report blocks under ``torch.no_grad`` and ``torch.inference_mode``: validation is often nothing but such a block."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from .._capture.compiler import compiles
from .._capture.recorder import Recorder
from .._process.replace import Attribute, CallProbe, Replacement
from ._base import ProbeContext, ProbeFactory, StepEvents

BEGINS = tuple(Replacement(Attribute(kind, "__enter__")) for kind in (torch.no_grad, torch.inference_mode))
ENDS = tuple(Replacement(Attribute(kind, "__exit__")) for kind in (torch.no_grad, torch.inference_mode))


class BlockBegins:
    """Report the begin of each outermost block on the training thread, except those of torch's compiler itself."""

    def __init__(self, recorder: Recorder, events: StepEvents) -> None:
        self._recorder = recorder
        self._events = events

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        if torch.is_grad_enabled() and get_ident() == self._recorder.thread and not compiles():
            try:
                self._events.report_ungraded(begins=True)
            except Exception:
                self._recorder.handle_failure("blocks without gradients")
        return False

    def leave(self) -> None:
        """Never called."""


class BlockEnds(BlockBegins):
    """Report the end of each outermost block on the training thread."""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        return get_ident() == self._recorder.thread and not compiles()

    def leave(self) -> None:
        if torch.is_grad_enabled():
            try:
                self._events.report_ungraded(begins=False)
            except Exception:
                self._recorder.handle_failure("blocks without gradients")


def _make(context: ProbeContext) -> CallProbe:
    assert context.events is not None
    begins, ends = BlockBegins(context.recorder, context.events), BlockEnds(context.recorder, context.events)
    return CallProbe([*((one, begins) for one in BEGINS), *((one, ends) for one in ENDS)])


PROBE = ProbeFactory(_make, reports_events=True)
