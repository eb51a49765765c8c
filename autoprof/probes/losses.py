"""Losses outside the model: ``nn.CrossEntropyLoss()`` and its kin, forward and backward, without being targets.

They are recognised by their class, ``torch.nn.modules.loss._Loss``: nothing is attached to them, so one made anew in
each step is timed as well. A loss that is a module of another class, or a function, is not: name it in ``functions``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.nn.modules.loss import _Loss

from ..recorder import Recorder
from ..span import Phase
from .far import hooks_by_input
from .handle import Handle
from .hooks import Hooks, Marked
from .patch import Attribute, Patch, PatchProbe
from .watching import Pair

PHASES = frozenset({Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD})


class _Kind(Marked):
    """The losses of one class: what marks their calls is what a module's hooks would be."""

    def __init__(self, recorder: Recorder, hooks: Hooks, name: str) -> None:
        super().__init__(self, recorder.label(f"Loss/{name}", None, Phase.FORWARD, PHASES))
        self._recorder = recorder
        self._failed = False
        several = hooks.passes.several

        def make(index: int | None) -> Pair:
            device = None if index == recorder.clock.home else index
            return hooks.on(device, several).following

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
        self._recorder.fail("losses")


class LossListener:
    """One session's losses: those that are no part of its model."""

    def __init__(self, recorder: Recorder, hooks: Hooks, model: nn.Module) -> None:
        self._recorder = recorder
        self._hooks = hooks
        self._inside = {id(module) for module in model.modules() if isinstance(module, _Loss)}
        self._model = model  # which keeps these alive, and with them their ids theirs
        self._kinds: dict[type, _Kind] = {}

    def of(self, loss: nn.Module) -> _Kind | None:
        """Return what marks this loss's calls, or None for one that the rules of the configuration decide on."""
        if get_ident() != self._recorder.thread or id(loss) in self._inside or torch.compiler.is_dynamo_compiling():
            return None
        kind = self._kinds.get(type(loss))
        if kind is None:
            kind = self._kinds[type(loss)] = _Kind(self._recorder, self._hooks, type(loss).__name__)
        return kind

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


CALL = Patch(Attribute(_Loss, "__call__"), _call)


def probe_losses(recorder: Recorder, hooks: Hooks, model: nn.Module, handle: Handle) -> PatchProbe:
    """Time the training thread's calls of losses that are no part of the model."""
    return PatchProbe([(CALL, LossListener(recorder, hooks, model))], handle)
