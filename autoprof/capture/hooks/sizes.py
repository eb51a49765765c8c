"""Note the sizes of a module's tensors, its operators and its hooks, at its first call in a recorded step."""

from __future__ import annotations

import os
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
_next_node = torch._C._autograd._get_sequence_nr


class ModuleSize(NamedTuple):
    """The class of a module, and the bytes of the tensors that one call takes and returns.

    ``has_hooks``: whether a parameter of its own has hooks on its gradient, which run in the module's backward.
    """

    kind: str
    passed_bytes: int
    has_hooks: bool = False
    hook: str = ""
    """A hook of the program that runs in its forward; torch's own are parts of a model, as ``spectral_norm``."""
    nodes: int = 0
    """Nodes of autograd that one call makes, those of modules inside included: the operators that have a backward."""


class SizeProbe(EntryProbe):
    """An entry of a target for one call, which ``sizes`` then has by the target's fqn."""

    where = "size hooks"

    def __init__(self, recorder: Recorder, target: Target, sizes: dict[str, ModuleSize]) -> None:
        super().__init__(recorder, target.module)
        self._fqn = target.fqn
        self._sizes = sizes
        self._entries = [CallEntry(self, SizeProbe.begin, SizeProbe.called)]

    def attach(self) -> None:
        """Have the next call noted, unless one was."""
        if self._fqn not in self._sizes and len(self._sizes) < MOST:
            super().attach()

    def begin(self, _module: nn.Module, _args: Any, _kwargs: Any) -> int:
        """Return the number of the thread's next node of autograd."""
        return _next_node()

    def called(self, module: nn.Module, args: Any, kwargs: Any, output: Any, first_node: int) -> None:
        """Note the sizes of a call that did not raise, and be called no more."""
        if output is None or _compiling() or _tracing() is not None:  # torch.jit.trace names values as variables here
            return
        try:
            passed = sum(one.numel() * one.itemsize for one in tensors_of((args, kwargs, output)) if not one.is_sparse)
            kind = f"{type(module).__module__}.{type(module).__qualname__}"
            own = module.parameters(recurse=False)
            has_hooks = any(one._backward_hooks or one._post_accumulate_grad_hooks for one in own)
            hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
            hook = next((_describe(one) for one in hooks if not _is_library(one)), "")
            self._sizes[self._fqn] = ModuleSize(kind, passed, has_hooks, hook, _next_node() - first_node)
            self.detach()
        except Exception:
            self.fail(module)


def _is_library(hook: Any) -> bool:
    # Methods written in C have ``__module__`` None: their type has the module.
    owner = getattr(hook, "__module__", None) or type(hook).__module__
    return str(owner).partition(".")[0] in ("torch", "autoprof")


def _describe(hook: Any) -> str:
    """Return the name of a hook, with its place where it is a function in Python."""
    name = getattr(hook, "__qualname__", type(hook).__qualname__).rpartition(".<locals>.")[2]
    code = getattr(hook, "__code__", None)
    return name if code is None else f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


skip_frames(SizeProbe.begin, callees=True)
skip_frames(SizeProbe.called, callees=True)  # dynamo would compile it beside the graph of a compiled model
