"""Call functions before ``torch.compile`` works and after it; take replaced functions away meanwhile.

``torch._dynamo`` takes a second to import, so its callbacks are registered when another module imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import wrapt

from .._process.replace import Attribute, InCompiler, Replacement, remove_while_compiling, restore_after_compiling
from .handle import Handle

_CALLBACKS: Final = "torch._dynamo.callback"
_EXPORT: Final = "torch.export._trace"
_TRACE_MODEL: Final = "_export_to_torch_ir"
"""The function of strict export that traces a model. Up to torch 2.6 at least it traces the hooks that it meets as
graphs of their own before it calls the callbacks of the compiler, and fails, as it needs one graph."""
_open: list[tuple[Callable[[], None], Callable[[], None]]] = []
"""The functions that each part calls before torch compiles, and after."""
_export: Replacement | None = None
_import_hooks_set = False


def around_compiler(start: Callable[[], None], end: Callable[[], None]) -> Handle:
    """Call ``start`` before torch compiles and ``end`` after it, until the handle is removed."""
    global _import_hooks_set
    handle, around = Handle(), (start, end)
    handle.add(lambda: _close(around))
    _open.append(around)
    for name, register in ((_CALLBACKS, _register_callbacks), (_EXPORT, _replace_export)):
        if name in sys.modules:
            register(sys.modules[name])
        elif not _import_hooks_set:
            wrapt.register_post_import_hook(register, name)
    _import_hooks_set = True
    return handle


def _close(around: Any) -> None:
    if around in _open:
        _open.remove(around)
    if not _open and _export is not None:
        _export.release(_open)


def compiles() -> bool:
    """Return whether torch compiles on this thread now, also where it calls no callbacks: ``reset`` forgets them."""
    guards = sys.modules.get("torch._guards")
    context = getattr(guards, "CompileContext", None)
    return context is not None and context.try_get() is not None


def _register_callbacks(callbacks: Any) -> None:
    with suppress(Exception):  # a torch without these callbacks compiles hooked models as they are
        handler = callbacks.callback_handler
        if _start not in handler.start_callbacks:  # torch._dynamo.reset() forgets them
            handler.register_start_callback(_start)
            handler.register_end_callback(_end)


def _replace_export(trace: Any) -> None:
    global _export
    if _open and hasattr(trace, _TRACE_MODEL):
        if _export is None:
            _export = Replacement(Attribute(trace, _TRACE_MODEL), in_compiler=InCompiler.PRESENT, listeners=[_Export()])
        _export.hold(_open)


class _Export:
    """Treat strict export as a compilation. A ``Listener``."""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        _start()
        return True

    def leave(self) -> None:
        _end()


def _start(*_args: Any) -> None:
    with suppress(Exception):
        remove_while_compiling()
    for start, _ in _open:
        with suppress(Exception):
            start()


def _end(*_args: Any) -> None:
    for _, end in _open:
        with suppress(Exception):
            end()
    with suppress(Exception):
        restore_after_compiling()
