"""Losses outside the model: ``nn.CrossEntropyLoss()`` and its kin, forward and backward, without being targets.

They are recognised by their class: ``torch.nn.modules.loss._Loss`` and what derives from it, and modules of classes
that are called a loss. Nothing is attached to them, so one made anew in each step is timed as well. A loss that is a
function, or of a class defined after the session opened, is not: name it in ``functions``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.loss import _Loss

from ...frame import MODULE_PHASES, Phase
from ..recorder import Recorder
from .autograd_hooks import HookPair
from .cross_device import hooks_by_input
from .handle import Handle
from .hook_owner import HookOwner
from .hooks import Hooks
from .patch import Attribute, Patch, PatchProbe

CALLED_LOSS: Final = re.compile(r"(Loss|Losses|Criterion|CrossEntropy)\d*$")
"""How the classes of losses are named that do not derive from torch's."""


class _Kind(HookOwner):
    """The losses of one class: what marks their calls is what a module's hooks would be."""

    def __init__(self, recorder: Recorder, hooks: Hooks, name: str) -> None:
        super().__init__(self, recorder.label(f"Loss/{name}", None, Phase.FORWARD, frozenset(MODULE_PHASES)))
        self._recorder = recorder
        self._failed = False
        several = hooks.passes.several

        def make(index: int | None) -> HookPair:
            device = None if index == recorder.clock.device_index else index
            return hooks.tracking(device, several)

        self._enter, self._leave = hooks_by_input(recorder, make, None, {}, self) if several else make(None)

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> bool:
        """Mark that a call begins."""
        if not self._failed:
            self._enter(self, self.module, args, kwargs)
        return not self._failed

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """Mark that it is over."""
        self._leave(self, self.module, args, output)

    def fail(self, module: nn.Module, error: Exception | None = None) -> None:
        """Count a failure of ours and mark no more."""
        self._failed = True
        self._recorder.handle_failure("losses")


class LossListener:
    """One session's losses: those that are no part of its model."""

    def __init__(self, recorder: Recorder, hooks: Hooks, model: nn.Module) -> None:
        self._recorder = recorder
        self._hooks = hooks
        self._inside = {id(module) for module in model.modules() if is_loss(module)}
        self._model = model  # which keeps these alive, and with them their ids theirs
        self._kinds: dict[type, _Kind | None] = {}

    def of(self, loss: nn.Module) -> _Kind | None:
        """Return what marks this loss's calls, or None for one that the rules of the configuration decide on."""
        if get_ident() != self._recorder.thread or id(loss) in self._inside or torch.compiler.is_dynamo_compiling():
            return None
        known = type(loss)
        if known not in self._kinds:
            holds_model = any(module is self._model for module in loss.modules())  # a model and its loss in one
            self._kinds[known] = None if holds_model else _Kind(self._recorder, self._hooks, known.__name__)
        return self._kinds[known]

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Nothing is told this way: a call of a loss is told with its output."""
        return False

    def leave(self) -> None:
        """Nothing was told."""


def _call(inner: Any, listeners: list[LossListener]) -> Any:
    @wraps(inner)
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not listeners:
            return inner(self, *args, **kwargs)
        kinds = [kind for listener in listeners if (kind := listener.of(self)) is not None]
        told = [kind for kind in kinds if kind.enter(self, args, kwargs)]
        output = None
        try:
            output = inner(self, *args, **kwargs)
            return output
        finally:
            for kind in reversed(told):
                kind.leave(self, args, output)

    return __call__


_calls: dict[type, Patch] = {_Loss: Patch(Attribute(_Loss, "__call__"), _call)}
"""What wraps the calls of each class, for all sessions."""


def is_loss(module: nn.Module) -> bool:
    """Tell whether a module is a loss, by its class."""
    return isinstance(module, _Loss) or any(CALLED_LOSS.search(kind.__name__) for kind in type(module).__mro__)


def _classes() -> list[type]:
    """Return the classes that all losses there are derive from."""
    found: list[type] = [_Loss]
    waiting: list[type] = [nn.Module]
    seen: set[type] = {_Loss}
    while waiting:
        derived: set[type] = set(type.__subclasses__(waiting.pop()))
        for kind in derived - seen:
            seen.add(kind)
            if CALLED_LOSS.search(kind.__name__):
                found.append(kind)
            else:
                waiting.append(kind)
    return [kind for kind in found if not any(base in found for base in kind.__mro__[1:])]  # each call is told once


def _forget() -> None:
    """Let go of the classes of the program's that no session wraps any more."""
    for kind in [kind for kind, patch in _calls.items() if kind is not _Loss and not patch.in_place]:
        del _calls[kind]


def probe_losses(recorder: Recorder, hooks: Hooks, model: nn.Module, handle: Handle) -> PatchProbe:
    """Time the training thread's calls of losses that are no part of the model."""
    handle.add(_forget)
    listener = LossListener(recorder, hooks, model)
    for kind in _classes():
        if kind not in _calls:
            _calls[kind] = Patch(Attribute(kind, "__call__"), _call)
    return PatchProbe([(patch, listener) for patch in _calls.values()], handle)
