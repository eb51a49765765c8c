"""Note the sizes of a module's tensors, its operators and its hooks, at its first calls in a recorded step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from ...base.allowance import Allowance
from ...base.process.replace import skip_frames
from ..recorder import Recorder
from .call_sites import CallEntry
from .entry_probe import EntryProbe
from .tensors import tensors_of

if TYPE_CHECKING:
    from ...targets import Target

MOST: Final = 2048
"""Modules that are noted: the notes are kept in the run's record."""
MOST_NODES: Final = 64
"""Nodes that are looked at between two calls: attention and a gate are thirty."""

VIEWS: Final = 4
"""Nodes between an output and the tensor that was filled: views, or a cast."""
WRITES: Final = 3
"""Writes in a row from which on a tensor was filled: one is an operator in place on a view, as ``x += residual``."""

_compiling = torch.compiler.is_dynamo_compiling
_tracing = torch._C._get_tracing_state
next_node = torch._C._autograd._get_sequence_nr
"""Return the number of the thread's next node of autograd: each node that it makes counts one."""


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
    chained: bool = False
    """Whether the second call takes floating-point tensors, all of which the output of the first call leads to."""
    is_filled: bool = False
    """Whether its output is a tensor that was filled slice by slice in place."""


class SizeProbe(EntryProbe):
    """The entry of a target for two calls, whose ``ModuleSize`` it writes into ``sizes``, by the target's fqn.

    ``allowance`` pays for it.
    """

    where = "size hooks"

    def __init__(self, recorder: Recorder, target: Target, sizes: dict[str, ModuleSize], allowance: Allowance) -> None:
        super().__init__(recorder, target.module)
        self._allowance = allowance
        self._fqn = target.fqn
        self._sizes = sizes
        self._first_nodes = range(0)
        """The numbers of the nodes that the first call has made."""
        self._first_in = 0
        """The serial of its step."""
        self._entries = [CallEntry(self, SizeProbe.begin, SizeProbe.called)]

    def attach(self) -> None:
        """Have the next two calls noted, unless one was."""
        if self._fqn not in self._sizes and len(self._sizes) < MOST:
            super().attach()

    def begin(self, module: nn.Module, args: Any, kwargs: Any) -> int:
        """Note whether a second call continues the first; return the number of the thread's next node of autograd."""
        known = self._sizes.get(self._fqn)
        if known is not None:
            try:
                if self._first_in == self.recorder.serial:  # a graph of another step is gone
                    with self._allowance.work():
                        chained = _come_from(self._first_nodes, tensors_of((args, kwargs)))
                    self._sizes[self._fqn] = known._replace(chained=chained)
                self.detach()
            except Exception:
                self.fail(module)
        return next_node()

    def called(self, module: nn.Module, args: Any, kwargs: Any, output: Any, first_node: int) -> None:
        """Note the sizes of a first call that did not raise."""
        if output is None or self._fqn in self._sizes or _compiling() or _tracing() is not None:
            return  # torch.jit.trace names values as variables here
        try:
            with self._allowance.work():
                self._note(module, args, kwargs, output, first_node)
        except Exception:
            self.fail(module)

    def _note(self, module: nn.Module, args: Any, kwargs: Any, output: Any, first_node: int) -> None:
        passed = sum(one.numel() * one.itemsize for one in tensors_of((args, kwargs, output)) if not one.is_sparse)
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        own = module.parameters(recurse=False)
        has_hooks = any(one._backward_hooks or one._post_accumulate_grad_hooks for one in own)
        hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        hook = next((_describe(one) for one in hooks if not _is_library(one)), "")
        self._first_nodes, self._first_in = range(first_node, next_node()), self.recorder.serial
        filled = any(_is_filled(one.grad_fn) for one in tensors_of(output))
        self._sizes[self._fqn] = ModuleSize(kind, passed, has_hooks, hook, len(self._first_nodes), is_filled=filled)


def _come_from(nodes: range, tensors: Sequence[Tensor]) -> bool:
    """Return whether there are floating-point tensors, and each has one of these nodes in its graph."""
    floating = [one for one in tensors if one.is_floating_point()]
    return bool(floating) and all(_leads_to(nodes, one.grad_fn) for one in floating)


def _leads_to(nodes: range, last: Any) -> bool:
    """Return whether the graph that ends with a node has one of these, in ``MOST_NODES`` of its last nodes at most."""
    return any(node._sequence_nr() in nodes for node in islice(_graph(last, nodes.start), MOST_NODES))


def _graph(last: Any, first: int) -> Iterator[Any]:
    """Yield the nodes of a graph from its last one on, of those that were made since the ``first``."""
    open_nodes, seen = [last], set[Any]()
    while open_nodes:
        node = open_nodes.pop()
        if node is not None and node not in seen and node._sequence_nr() >= first:
            yield node
            seen.add(node)
            open_nodes += [before for before, _ in node.next_functions]


def _is_filled(node: Any) -> bool:
    """Return whether a graph ends with several writes into slices of one tensor, each the first input of the next."""
    writes = 0
    for _ in range(VIEWS + WRITES):
        if node is None or writes == WRITES:
            break
        is_write = type(node).__name__ == "CopySlices"
        if writes and not is_write:
            return False
        writes += is_write
        node = node.next_functions[0][0] if node.next_functions else None
    return writes == WRITES


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
