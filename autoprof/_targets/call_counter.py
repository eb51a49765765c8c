"""Count the calls of modules in a step with a Python profile function: nothing is attached to the model."""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

from torch import nn

from .tree import ModuleNode, walk

_CALL: Final = nn.Module._call_impl.__code__
"""The code that runs the hooks of a module."""
_SUSPENDED: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of code that is entered again at each resumption."""


def is_suspended(module: nn.Module) -> bool:
    """Return whether the module's ``forward`` is a generator or a coroutine, so that a call only creates it."""
    code = getattr(inspect.unwrap(module.forward), "__code__", None)
    return isinstance(code, CodeType) and bool(code.co_flags & _SUSPENDED)


class CallCounter:
    """Count the calls of a model's modules, and the runs of their ``forward`` outside any call.

    A context manager around a step. It uses ``sys.setprofile`` in this thread and in threads that start inside. The
    step takes several times as long. Where another profile function is set it counts nothing.
    """

    def __init__(self, model: nn.Module) -> None:
        self.active = False
        """Whether it counted: no other profile function was set."""
        nodes = walk(model)
        self._nodes = {id(module): node for node in nodes for module in (node.module, node.inner)}
        self._forwards = {code for node in nodes for code in _forward_codes(node.inner)}
        self._called: Counter[ModuleNode] = Counter()
        self._direct: Counter[ModuleNode] = Counter()

    def called(self, module: nn.Module) -> int:
        """Return the number of calls of the module."""
        return self._called[self._nodes[id(module)]]

    def direct(self, module: nn.Module) -> int:
        """Return the number of runs of its ``forward`` without a call of the module."""
        return self._direct[self._nodes[id(module)]]

    def __enter__(self) -> CallCounter:
        if sys.getprofile() is None:
            self.active = True
            threading.setprofile(self._count_call)
            sys.setprofile(self._count_call)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.active:
            sys.setprofile(None)
            threading.setprofile(None)

    def _count_call(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        if frame.f_code is _CALL:
            node = self._node(frame)
            if node is not None:
                self._called[node] += 1
        elif frame.f_code in self._forwards:
            node = self._node(frame)
            if node is not None and not self._is_inside_call(frame.f_back, node):
                self._direct[node] += 1

    def _is_inside_call(self, frame: FrameType | None, node: ModuleNode) -> bool:
        """Return whether the innermost running module is this one: its call, or its own ``forward``."""
        while frame is not None:
            if frame.f_code is _CALL or frame.f_code in self._forwards:
                inside = self._node(frame)
                if inside is not None:  # not a wrapper, which is no node of its own
                    return inside is node
            frame = frame.f_back
        return False

    def _node(self, frame: FrameType) -> ModuleNode | None:
        """Return the node of the module that is the first argument of the frame's function."""
        code = frame.f_code
        if code.co_argcount:
            return self._nodes.get(id(frame.f_locals.get(code.co_varnames[0])))
        if code.co_flags & inspect.CO_VARARGS:
            given = frame.f_locals.get(code.co_varnames[code.co_kwonlyargcount], ())
            return self._nodes.get(id(given[0])) if given else None
        return None


def _forward_codes(module: nn.Module) -> Iterator[CodeType]:
    """Yield the code of the module's ``forward`` methods, inherited ones too, inside their decorators."""
    inherited = [vars(cls).get("forward") for cls in type(module).__mro__ if cls is not nn.Module]
    for forward in [vars(module).get("forward"), *inherited]:
        function = getattr(forward, "func", forward)  # functools.partial(function, module)
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        if isinstance(code, CodeType) and not code.co_flags & _SUSPENDED:
            yield code
