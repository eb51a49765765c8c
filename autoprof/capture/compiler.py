"""Call functions before ``torch.compile`` works and after it; take replaced functions away meanwhile.

``torch._dynamo`` takes a second to import, so its callbacks are registered when another module imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import wrapt

from ..base.process.replace import remove_while_compiling, restore_after_compiling
from .handle import Handle

_open: list[tuple[Callable[[], None], Callable[[], None]]] = []
"""The functions that each part calls before torch compiles, and after."""


def around_compiler(start: Callable[[], None], end: Callable[[], None]) -> Handle:
    """Call ``start`` before torch compiles and ``end`` after it, until the handle is removed."""
    handle, around = Handle(), (start, end)
    handle.add(lambda: _close(around))
    _open.append(around)
    wrapt.register_post_import_hook(_register_callbacks, "torch._dynamo.callback")  # at once where it is imported
    return handle


def _close(around: Any) -> None:
    if around in _open:
        _open.remove(around)


def _register_callbacks(callbacks: Any) -> None:
    with suppress(Exception):  # a torch without these callbacks compiles hooked models as they are
        handler = callbacks.callback_handler
        if _start not in handler.start_callbacks:  # torch._dynamo.reset() forgets them
            handler.register_start_callback(_start)
            handler.register_end_callback(_end)


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
