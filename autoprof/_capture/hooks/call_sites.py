"""Call functions around the calls of modules, without a hook on any module.

``nn.Module.__call__`` asks for the class attribute ``_compiled_call_impl`` and calls it in place of ``_call_impl``.
While a session is open, a table takes the attribute's place: for a module in the table it returns the module's *site*,
which calls its entries and, between them, what torch would have called. Nothing is stored in a module. So copies,
pickles and replicas of a module have no marks, compiled graphs have no guard of ours, and code that asks whether a
module has hooks finds none.

The table and its sites are in C: ``marks/call_site.c``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torch import nn

from ..._process.replace import Attribute, InCompiler, Replacement
from ..handle import Handle
from ..marks.native import extension

NAME: Final = "_compiled_call_impl"
"""The attribute, which belongs to ``nn.Module.compile``."""

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


_ATTRIBUTE: Final = Replacement(Attribute(nn.Module, NAME), lambda _original, _listeners: table)
_REPLICATE: Final = Replacement(
    Attribute(nn.Module, "_replicate_for_data_parallel"), _alias_replica, in_compiler=InCompiler.PRESENT
)


def keep_calls() -> Handle:
    """Keep the table in place until the handle is removed."""
    handle = Handle()
    for replacement in (_ATTRIBUTE, _REPLICATE):
        replacement.hold(handle)
        handle.add(partial(replacement.release, handle))
    return handle


_own = keep_calls.__name__
"""The holder of the table while a module has entries and no session keeps it."""


def add_entry(module: nn.Module, entry: Any, *, first: bool = False) -> None:
    """Have an entry called around the calls of a module, innermost; ``first``: outermost."""
    site = _site(module)
    site.entries = (entry, *site.entries) if first else (*site.entries, entry)


def remove_entry(module: nn.Module, entry: Any) -> None:
    """Call an entry no more; do nothing where it is not there."""
    site = table.find(module)
    if site is not None:
        site.entries = tuple(one for one in site.entries if one is not entry)
        _drop_empty(module, site)


def add_before(module: nn.Module, function: Callable[[nn.Module], object]) -> None:
    """Have a function called with a module before its calls, and before the entries of these calls are looked up."""
    site = _site(module)
    site.before = (*site.before, function)


def remove_before(module: nn.Module, function: Callable[[nn.Module], object]) -> None:
    """Call it no more; do nothing where it is not there."""
    site = table.find(module)
    if site is not None:
        site.before = tuple(one for one in site.before if one != function)
        _drop_empty(module, site)


def add_alias(wrapper: nn.Module, module: nn.Module) -> None:
    """Have the entries of a module called around the calls of a module that wraps it, and not inside these."""
    table.alias(wrapper, _site(module), wraps=True)


def remove_alias(wrapper: nn.Module) -> None:
    """Undo ``add_alias``."""
    table.drop(wrapper)
    _release_empty()


def _site(module: nn.Module) -> Any:
    if not _ATTRIBUTE.in_place:
        _ATTRIBUTE.hold(_own)
    return table.site(module)


def _drop_empty(module: nn.Module, site: Any) -> None:
    if not site.entries and not site.before:
        table.drop(module)
        _release_empty()


def _release_empty() -> None:
    if not len(table):
        _ATTRIBUTE.release(_own)
