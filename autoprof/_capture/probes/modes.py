"""Calls of ``model.train()`` and ``model.eval()``: seen also in steps that are left alone, without a hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from .handle import Handle
from .patch import Attribute, Patch, PatchProbe

TRAIN = Patch(Attribute(nn.Module, "train"))


class ModeListener:
    """Tell when this model, not one of its parts, is switched to training or away from it."""

    def __init__(self, model: nn.Module, switched: Callable[[bool], None]) -> None:
        self._model = model
        self._switched = switched

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Take word that a module is switched."""
        if args and args[0] is self._model:
            self._switched(args[1] if len(args) > 1 else True)
        return False

    def leave(self) -> None:
        """Nothing was told."""


def probe_modes(model: nn.Module, switched: Callable[[bool], None], handle: Handle) -> None:
    """Have ``switched`` called for as long as the session is open."""
    PatchProbe([(TRAIN, ModeListener(model, switched))], handle).attach()
