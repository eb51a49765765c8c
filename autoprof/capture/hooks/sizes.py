"""Note how large the tensors are that a module takes and returns, at its first call in a recorded step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import nn

from ...base.process.replace import skip_frames
from ..recorder import Recorder
from .call_sites import CallEntry
from .entry_probe import EntryProbe
from .tensors import tensors_of

if TYPE_CHECKING:
    from ...targets import Target

MOST: Final = 2048
"""Modules that are noted: the notes are kept in the run's record."""

_compiling = torch.compiler.is_dynamo_compiling
_tracing = torch._C._get_tracing_state


class ModuleSize(NamedTuple):
    """The class of a module, and the bytes of the tensors that one call takes and returns.

    ``has_hooks``: whether a parameter of its own has hooks on its gradient, which run in the module's backward.
    """

    kind: str
    passed_bytes: int
    has_hooks: bool = False


class SizeProbe(EntryProbe):
    """An entry of a target for one call, which ``sizes`` then has by the target's fqn."""

    where = "size hooks"

    def __init__(self, recorder: Recorder, target: Target, sizes: dict[str, ModuleSize]) -> None:
        super().__init__(recorder, target.module)
        self._fqn = target.fqn
        self._sizes = sizes
        self._entries = [CallEntry(self, None, SizeProbe.called)]

    def attach(self) -> None:
        """Have the next call noted, unless one was."""
        if self._fqn not in self._sizes and len(self._sizes) < MOST:
            super().attach()

    def called(self, module: nn.Module, args: Any, kwargs: Any, output: Any, _call: Any) -> None:
        """Note the sizes of a call that did not raise, and be called no more."""
        if output is None or _compiling() or _tracing() is not None:  # torch.jit.trace names values as variables here
            return
        try:
            passed = sum(one.numel() * one.itemsize for one in tensors_of((args, kwargs, output)) if not one.is_sparse)
            kind = f"{type(module).__module__}.{type(module).__qualname__}"
            own = module.parameters(recurse=False)
            has_hooks = any(one._backward_hooks or one._post_accumulate_grad_hooks for one in own)
            self._sizes[self._fqn] = ModuleSize(kind, passed, has_hooks)
            self.detach()
        except Exception:
            self.fail(module)


skip_frames(SizeProbe.called, callees=True)  # dynamo would compile it beside the graph of a compiled model
