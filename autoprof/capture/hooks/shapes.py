"""Note the shapes that a module takes and returns, at its first call: ``detail: shapes``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...base.process.replace import skip_frames
from ..recorder import Recorder
from .call_sites import CallEntry
from .entry_probe import EntryProbe
from .tensors import phrase_shapes

if TYPE_CHECKING:
    from ...targets import Target

_compiling = torch.compiler.is_dynamo_compiling


class ShapeProbe(EntryProbe):
    """A separate entry of the targets with ``detail: shapes``; ``note`` takes the sentence of the first call."""

    where = "shape hooks"

    def __init__(self, recorder: Recorder, target: Target, note: Callable[[str], None]) -> None:
        super().__init__(recorder, target.module)
        self._name = target.name
        self._note = note
        self._is_noted = False
        self._entries = [CallEntry(self, None, ShapeProbe.called)]

    def called(self, module: nn.Module, args: Any, kwargs: Any, output: Any, _call: Any) -> None:
        """Note the shapes of the first call that did not raise."""
        if self._is_noted or output is None or _compiling():
            return
        self._is_noted = True
        try:
            inputs = phrase_shapes(_arguments(module, args, kwargs))
            self._note(f"shapes of {self._name}: {inputs} -> {phrase_shapes({'': output})}")
        except Exception:
            self.fail(module)


def _arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by their names in ``forward``; by their positions where it has no signature."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{str(at): value for at, value in enumerate(args)}, **kwargs}
    return dict(bound.arguments)


skip_frames(ShapeProbe.called, callees=True)  # dynamo would compile it beside the graph of a compiled model
