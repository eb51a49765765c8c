"""Call functions around the calls of modules, without a hook on any module.

Each call of a module runs one function of torch, ``nn.Module._wrapped_call_impl``. While a session is open, C code is
called in its place (``PyFunction_SetVectorcall``): for a module in ``table`` it calls the entries of the module's
*site* and, between them, what torch would have called. Nothing is stored in a module, its class or the function. So
copies, pickles and replicas of a module have no marks, code that asks whether a module has hooks finds none, and no
guard of a compiled graph fails: dynamo reads the function's code, which stays.

On CPython 3.11 alone, a call of the function that is written in Python with positional arguments only
(``super().__call__(x)`` in a class with a ``__call__`` of its own) is not intercepted: the interpreter runs its code
without asking the function how.

The table and its sites are in C: ``marks/call_site.c``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from torch import nn

from ...base.process.replace import Attribute, InCompiler, Replacement
from ..handle import Handle
from ..marks.native import extension

table: Final[Any] = None if extension is None else extension.CallTable()
"""The modules of all sessions."""
CallEntry: Final[Any] = None if extension is None else extension.CallEntry


def _alias_replica(original: Any, listeners: list[Any]) -> Any:
    def _replicate_for_data_parallel(self: nn.Module) -> nn.Module:
        replica: nn.Module = original(self)
        site = table.find(self)
        if site is not None:
            table.alias(replica, site, wraps=False)
        return replica

    return _replicate_for_data_parallel


_keepers: Final[list[Handle]] = []


class _Calls:
    """The function that each call of a module runs, as a place of a ``Replacement``: ``table`` or None."""

    def get(self) -> Any:
        return table if table.intercepts else None

    def put(self, value: Any) -> None:
        value.intercept(vars(nn.Module)["_wrapped_call_impl"])

    def put_back(self, _original: None) -> None:
        table.intercept(None)


_CALLS: Final = Replacement(_Calls(), lambda _original, _listeners: table)
_REPLICATE: Final = Replacement(
    Attribute(nn.Module, "_replicate_for_data_parallel"), _alias_replica, in_compiler=InCompiler.PRESENT
)


def keep_calls() -> Handle:
    """Keep intercepting calls, also while no module has a site, until the handle is removed."""
    handle = Handle()
    _keepers.append(handle)
    handle.add(partial(_keep_no_longer, handle))
    _REPLICATE.hold(handle)
    handle.add(partial(_REPLICATE.release, handle))
    return handle


def _keep_no_longer(handle: Handle) -> None:
    if handle in _keepers:
        _keepers.remove(handle)
    _release()


def site_of(module: nn.Module) -> Any:
    """Return the site of a module; calls are intercepted from now on."""
    _CALLS.hold(table)
    return table.site(module)


def _release() -> None:
    """Intercept no more calls, unless there are sites or sessions."""
    if not len(table) and not _keepers:
        _CALLS.release(table)


def drop_site(module: nn.Module) -> None:
    """Remove the site of a module, unless something is called there; without sites no call is intercepted."""
    site = table.find(module)
    if site is not None and not site.entries and not site.before:
        table.drop(module)
    _release()
