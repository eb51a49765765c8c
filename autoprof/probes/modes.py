"""Report ``model.train()`` and ``model.eval()``, also in unsampled steps, where no hook sees validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from torch import nn

from ..base.process.replace import Attribute, CallProbe, Listener, Replacement
from ._base import ProbeContext, ProbeFactory, StepEvents

TRAIN = Replacement(Attribute(nn.Module, "train"))


class ModeListener(Listener):
    """Report a change of mode of the model itself, not of one of its parts."""

    def __init__(self, model: nn.Module, events: StepEvents) -> None:
        self._model = ref(model)
        self._events = events

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        if args and args[0] is self._model():
            self._events.report_mode(args[1] if len(args) > 1 else True)
        return False


def _make(context: ProbeContext) -> CallProbe:
    assert context.events is not None
    return CallProbe([(TRAIN, ModeListener(context.model, context.events))])


PROBE = ProbeFactory(_make, reports_events=True)
