"""Spans of losses outside the model, forward and backward: ``nn.CrossEntropyLoss()`` and the like.

A loss is recognised by its class: one derived from ``torch.nn.modules.loss._Loss``, or a module class named like a
loss. No hook is attached to it, so a loss made anew in each step is timed as well. A loss that is a function, or of a
class defined after the session opened, is not: name it in ``functions``.
"""

from __future__ import annotations

import re
from functools import wraps
from threading import get_ident
from typing import Any, Final
from weakref import WeakSet, ref

import torch
from torch import nn
from torch.nn.modules.loss import _Loss

from ..base.frame import MODULE_PHASES, Phase
from ..base.process.replace import Attribute, CallProbe, Listener, Replacement
from ..capture import recorder as recorders
from ..capture.hooks.entry_probe import HookOwner
from ..capture.hooks.module_hooks import Hooks
from ..capture.recorder import Recorder
from ._base import ProbeFactory

LOSS: Final = "Loss/"
"""The begin of the names of their spans."""
LOSS_NAME: Final = re.compile(r"(Loss|Losses|Criterion|CrossEntropy)\d*$")
"""The names of loss classes that are not derived from torch's."""


class _LossClass(HookOwner):
    """The marks of one class's losses: made by the functions that mark calls of modules."""

    def __init__(self, recorder: Recorder, hooks: Hooks, name: str) -> None:
        super().__init__(self, recorder.label(name, None, Phase.FORWARD, frozenset(MODULE_PHASES)))
        self._recorder = recorder
        self._failed = False
        made = hooks.by_input(hooks.tracking, None) if hooks.passes.several else hooks.tracking(None)
        self._before, self._after = made.before, made.after

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Mark that a call begins; return the call, or None where no mark was made."""
        return None if self._failed else self._before(self, self.module, args, kwargs)

    def leave(self, call: Any, args: Any, kwargs: Any, output: Any) -> None:
        self._after(self, self.module, args, kwargs, output, call)

    def fail(self, module: nn.Module, error: Exception | None = None) -> None:
        self._failed = True
        self._recorder.handle_failure("losses")


def _replace_call(original: Any, listeners: list[LossProbe]) -> Any:
    @wraps(original)
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not listeners:
            return original(self, *args, **kwargs)
        marks = [one for listener in listeners if (one := listener.marks_of(self)) is not None]
        entered = [(one, one.enter(self, args, kwargs)) for one in marks]
        output = None
        try:
            output = original(self, *args, **kwargs)
            return output
        finally:
            for one, call in reversed(entered):
                one.leave(call, args, kwargs, output)

    return __call__


_calls: dict[type, Replacement] = {}
"""The replaced ``__call__`` of each class, for all sessions."""


def is_loss(module: nn.Module) -> bool:
    """Return whether a module is a loss, by its class."""
    return isinstance(module, _Loss) or any(LOSS_NAME.search(kind.__name__) for kind in type(module).__mro__)


def span_name(kind: type) -> str:
    """Return the name of the spans of a class of losses."""
    return f"{LOSS}{kind.__name__}"


def _loss_classes() -> list[type]:
    """Return the classes that all losses of this process derive from."""
    found: list[type] = [_Loss]
    pending: list[type] = [nn.Module]
    seen: set[type] = {_Loss}
    while pending:
        subclasses: set[type] = set(type.__subclasses__(pending.pop()))
        for kind in subclasses - seen:
            seen.add(kind)
            if LOSS_NAME.search(kind.__name__):
                found.append(kind)
            else:
                pending.append(kind)
    return [kind for kind in found if not any(base in found for base in kind.__mro__[1:])]  # each call is seen once


class LossProbe(CallProbe, Listener):
    """Time the training thread's calls of losses that are no part of the model."""

    def __init__(self, recorder: Recorder, hooks: Hooks, model: nn.Module) -> None:
        for kind in _loss_classes():
            _calls.setdefault(kind, Replacement(Attribute(kind, "__call__"), _replace_call))
        super().__init__([(replacement, self) for replacement in _calls.values()])
        self._recorder = recorder
        self._hooks = hooks
        self._in_model = WeakSet(module for module in model.modules() if is_loss(module))
        self._model = ref(model)
        self._classes: dict[type, _LossClass | None] = {}
        self.losses: dict[str, ref[nn.Module]] = {}
        """The first loss of each class that was called, by the name of its span."""

    def marks_of(self, loss: nn.Module) -> _LossClass | None:
        """Return the object that marks calls of this loss; None for a part of the model: the configuration decides.

        While FLOPs are being counted no recorder is active: the copy of a loss in the model is not in ``_in_model``.
        """
        if recorders.active is None or get_ident() != self._recorder.thread:
            return None
        if loss in self._in_model or torch.compiler.is_dynamo_compiling():
            return None
        kind = type(loss)
        if kind not in self._classes:
            has_model = any(module is self._model() for module in loss.modules())  # a model and its loss in one
            self._classes[kind] = None if has_model else _LossClass(self._recorder, self._hooks, span_name(kind))
            if not has_model:
                self.losses[span_name(kind)] = ref(loss)
        return self._classes[kind]

    def remove(self) -> None:
        """Put ``__call__`` back, and forget the program's classes that no session uses any more."""
        super().remove()
        for kind in [kind for kind, call in _calls.items() if kind is not _Loss and not call.in_place]:
            del _calls[kind]


PROBE = ProbeFactory(lambda context: LossProbe(context.recorder, context.module_hooks, context.model))
