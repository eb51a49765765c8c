"""Call functions around the calls of modules, without a hook on any module.

``nn.Module.__call__`` asks for the class attribute ``_compiled_call_impl`` and calls it in place of ``_call_impl``.
While a session is open, a table takes the attribute's place: for a module in the table it returns the module's *site*,
which calls its entries and, between them, what torch would have called. Nothing is stored in a module. So copies,
pickles and replicas of a module have no marks, compiled graphs have no guard of ours, and code that asks whether a
module has hooks finds none.

The table and its sites are in C: ``marks/call_site.c``.
"""

from __future__ import annotations

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


def site_of(module: nn.Module) -> Any:
    """Return the site of a module; have the table in place."""
    if not _ATTRIBUTE.in_place:
        _ATTRIBUTE.hold(table)  # for as long as it has sites, where no session keeps it
    return table.site(module)


def drop_site(module: nn.Module) -> None:
    """Remove the site of a module, unless something is called there; a table without sites leaves its place."""
    site = table.find(module)
    if site is not None and not site.entries and not site.before:
        table.drop(module)
    if not len(table):
        _ATTRIBUTE.release(table)
