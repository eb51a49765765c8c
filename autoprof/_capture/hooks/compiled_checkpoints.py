"""Detect activation checkpointing inside a graph of ``torch.compile``, where no recomputation can be timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from ..._process.replace import Attribute, InCompiler, Replacement, call_after
from ..compiler import around_compiler
from ..handle import Handle

_MODULE: Final = "torch._dynamo.variables.higher_order_ops"
_CLASS: Final = "CheckpointHigherOrderVariable"
_METHODS: Final = "_call_function", "call_function"
"""The method that traces a checkpoint, in newer and older versions of torch."""

_replacement: Replacement | None = None


def watch_compiled_checkpoints(found: Callable[[], None]) -> Handle:
    """Call ``found`` whenever a checkpoint is traced into a graph, until the handle is removed.

    The method is replaced only while torch compiles, when ``torch._dynamo`` is imported. It raises for a graph break.
    """
    handle = Handle()

    def report(_variable: Any) -> None:
        found()

    def start() -> None:
        replacement = _traced_checkpoint()
        if replacement is not None:
            replacement.hold(handle)
            replacement.listen(report)

    def end() -> None:
        if _replacement is not None:
            _replacement.ignore(report)
            _replacement.release(handle)

    handle.add(end)
    handle.add(around_compiler(start, end).remove)
    return handle


def _traced_checkpoint() -> Replacement | None:
    global _replacement
    if _replacement is None:
        owner = getattr(sys.modules.get(_MODULE), _CLASS, None)
        name = next((name for name in _METHODS if name in vars(owner)), None) if owner is not None else None
        if name is not None:
            _replacement = Replacement(Attribute(owner, name), call_after, in_compiler=InCompiler.PRESENT)
    return _replacement
