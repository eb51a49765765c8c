"""Detect activation checkpointing inside a graph of ``torch.compile``, where no recomputation can be timed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from ..._process.replace import Attribute, InCompiler, Replacement
from ..compiler import around_compiler
from ..handle import Handle

_MODULE: Final = "torch._dynamo.variables.higher_order_ops"
_CLASS: Final = "CheckpointHigherOrderVariable"
_METHODS: Final = "_call_function", "call_function"
"""The method that traces a checkpoint, in newer and older versions of torch."""

_replacement: Replacement | None = None


def watch_compiled_checkpoints(found: Callable[[], None]) -> Handle:
    """Call ``found`` whenever a checkpoint is traced into a graph, until the handle is removed."""
    watcher, handle = _Watcher(found), Handle()
    handle.add(watcher.end)
    handle.add(around_compiler(watcher.start, watcher.end).remove)
    return handle


class _Watcher:
    """Replace the method only while torch compiles: ``torch._dynamo`` is imported then."""

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found

    def start(self) -> None:
        replacement = _traced_checkpoint()
        if replacement is not None:
            replacement.hold(self)
            replacement.listen(self._found)

    def end(self) -> None:
        if _replacement is not None:
            _replacement.ignore(self._found)
            _replacement.release(self)


def _traced_checkpoint() -> Replacement | None:
    global _replacement
    if _replacement is None:
        owner = getattr(sys.modules.get(_MODULE), _CLASS, None)
        name = next((name for name in _METHODS if name in vars(owner)), None) if owner is not None else None
        if name is not None:
            _replacement = Replacement(Attribute(owner, name), _report_success, in_compiler=InCompiler.PRESENT)
    return _replacement


def _report_success(original: Any, listeners: list[Callable[[], None]]) -> Any:
    """Return the method, which calls the listeners where it returns; it raises where the graph breaks."""

    @functools.wraps(original)
    def call_function(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        for found in listeners[:]:
            found()
        return result

    return call_function
