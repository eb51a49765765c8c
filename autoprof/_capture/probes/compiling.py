"""Our hooks step aside while ``torch.compile`` works, so that it makes the graphs and guards of the bare model.

A graph traced through a hooked module is guarded by the hooks: more to check at each call, and compiled anew when
they come off. Traced without them it is guarded by nothing of ours, and hooks that come back later leave it valid
(torch does not guard what was without hooks, ``skip_nnmodule_hook_guards``); inside a graph they do not fire anyway.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from types import CodeType
from typing import Any, Final

import wrapt
from torch import nn

from .boundary import BoundaryProbe
from .handle import Handle
from .module import ModuleProbe, Orphan
from .patch import come_back, step_aside
from .shapes import ShapeProbe

HOOKS: Final = ("_forward_pre_hooks", "_forward_hooks")
_FLAGS: Final = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")
_CALLBACKS: Final = "torch._dynamo.callback"
_EXPORT: Final = "torch.export._trace"
_TO_GRAPH: Final = "_export_to_torch_ir"
"""What strict export calls to trace a model. Up to torch 2.6 at least it traces the hooks that it meets on the way as
graphs of their own, before it says that it compiles, and wants one graph."""
_open: list[_Aside | _Around] = []
_skipped: list[CodeType] = []
_asked = False
_compiled = False


def is_ours(hook: Any) -> bool:
    """Tell whether a module's hook is one of autoprof's."""
    return isinstance(getattr(hook, "__self__", None), (ModuleProbe, BoundaryProbe, ShapeProbe, Orphan))


def step_aside_for_compiler(modules: Iterable[nn.Module], compiled: Callable[[], None]) -> Handle:
    """Take our hooks off these modules whenever torch compiles, then put them back and say so by ``compiled``.

    ``torch._dynamo`` takes a second to import, so it is waited for where nobody has imported it yet.
    """
    aside = _Aside(modules, compiled)
    return _enlist(aside, aside.close)


def around_compiler(start: Callable[[], None], end: Callable[[], None]) -> Handle:
    """Call ``start`` before torch compiles and ``end`` after it."""
    around = _Around(start, end)
    return _enlist(around, around.close)


def skip_in_compiler(function: Any) -> None:
    """Have torch never compile this function of ours, which compiled code may come to call where its graph breaks.

    Its frames are skipped; and where it was put on the stack before a graph broke and is called after that, the mark of
    ``torch.compiler.disable`` keeps it from being traced, as a call of C is not traced either.
    """
    function._torchdynamo_disable = True
    _skipped.append(function.__code__)


def _enlist(one: _Aside | _Around, close: Callable[[], None]) -> Handle:
    global _asked
    handle = Handle()
    handle.add(close)
    _open.append(one)
    for name, take_note in ((_CALLBACKS, _register), (_EXPORT, _wrap_export)):
        if name in sys.modules:
            take_note(sys.modules[name])
        elif not _asked:
            wrapt.register_post_import_hook(take_note, name)
    _asked = True
    return handle


def _register(callbacks: Any) -> None:
    with suppress(Exception):  # a torch without these callbacks compiles hooked models as they are
        handler = callbacks.callback_handler
        if _start not in handler.start_callbacks:  # torch._dynamo.reset() forgets them
            handler.register_start_callback(_start)
            handler.register_end_callback(_end)


def _wrap_export(trace: Any) -> None:
    inner = getattr(trace, _TO_GRAPH, None)
    if inner is None or hasattr(inner, "_autoprof_wraps") or not _open:
        return

    @wraps(inner)
    def export(*args: Any, **kwargs: Any) -> Any:
        _start()
        try:
            return inner(*args, **kwargs)
        finally:
            _end()

    export._autoprof_wraps = inner  # type: ignore[attr-defined]
    setattr(trace, _TO_GRAPH, export)


def _unwrap_export() -> None:
    trace = sys.modules.get(_EXPORT)
    inner = getattr(getattr(trace, _TO_GRAPH, None), "_autoprof_wraps", None)
    if inner is not None:
        setattr(trace, _TO_GRAPH, inner)


def has_compiled() -> bool:
    """Tell whether torch has compiled anything in this process: its guards may hold what a global name stands for."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return _compiled or bool(counters.get("frames"))


def _start(*_args: Any) -> None:
    global _compiled
    _compiled = True
    while _skipped:
        with suppress(Exception):
            sys.modules["torch._dynamo.eval_frame"].skip_code(_skipped.pop())
    with suppress(Exception):
        step_aside()
    for aside in _open:
        with suppress(Exception):
            aside.start()


def _end(*_args: Any) -> None:
    for aside in _open:
        with suppress(Exception):
            aside.end()
    with suppress(Exception):
        come_back()


class _Around:
    """What one part of ours does before torch compiles, and after it."""

    def __init__(self, start: Callable[[], None], end: Callable[[], None]) -> None:
        self.start = start
        self.end = end

    def close(self) -> None:
        """Do so no more."""
        if self in _open:
            _open.remove(self)


class _Aside:
    """The modules of one session, and what puts their hooks back while torch compiles."""

    def __init__(self, modules: Iterable[nn.Module], compiled: Callable[[], None]) -> None:
        self._modules = list(modules)
        self._compiled = compiled
        self._put_back: list[Callable[[], None]] = []
        self._started = False

    def start(self) -> None:
        """Take our hooks off."""
        self._started = True
        if not self._put_back:
            for module in self._modules:
                self._put_back += [
                    _take_out(module, name) for name in HOOKS if any(map(is_ours, getattr(module, name).values()))
                ]

    def end(self) -> None:
        """Put them back as they were."""
        if self._started:
            self._started = False
            self._compiled()
        while self._put_back:
            self._put_back.pop()()

    def close(self) -> None:
        """Do so no more."""
        if self in _open:
            _open.remove(self)
            if not _open:
                _unwrap_export()
        self._modules.clear()
        self._put_back.clear()


def _take_out(module: nn.Module, name: str) -> Callable[[], None]:
    hooks: OrderedDict[int, Any] = getattr(module, name)
    before = list(hooks.items())
    flags = [
        (table, key, table[key])
        for flag in _FLAGS
        for table in [getattr(module, flag)]
        for key, hook in before
        if is_ours(hook) and key in table
    ]
    for key, hook in before:
        if is_ours(hook):
            del hooks[key]
    for table, key, _ in flags:
        del table[key]

    def put_back() -> None:
        added = [key for key in hooks if key not in dict(before)]
        for key, hook in before:
            if is_ours(hook):
                hooks[key] = hook
            if key in hooks:
                hooks.move_to_end(key)
        for key in added:
            hooks.move_to_end(key)
        for table, key, value in flags:
            table[key] = value

    return put_back
