"""The hook on the model itself that tells where the next step begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .module import ModuleProbe, Orphan

_compiling = torch.compiler.is_dynamo_compiling


class BoundaryProbe:
    """Call back at each training forward of the model; a copy of the hook behaves as that of a ``ModuleProbe``."""

    __slots__ = ("_before", "_handle")

    def __init__(self, model: nn.Module, before: Callable[[], None]) -> None:
        self._before = before
        self._handle = model.register_forward_pre_hook(self.enter, prepend=True)

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Say that a forward begins, if it trains."""
        if not _compiling() and module.training:
            self._before()

    def remove(self) -> None:
        """Take the hook off."""
        self._handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> Orphan:
        return Orphan()

    __reduce__ = ModuleProbe.__reduce__
