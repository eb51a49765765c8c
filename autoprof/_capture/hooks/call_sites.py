"""Call functions around the calls of modules, without a hook on any module.

``nn.Module.__call__`` asks for the class attribute ``_compiled_call_impl`` and calls it in place of ``_call_impl``.
While a session is open, a table takes the attribute's place in the classes of marked modules: for a module in the
table it returns the module's *site*, which calls its entries and, between them, what torch would have called. Nothing
is stored in a module. So copies, pickles and replicas of a module have no marks, and code that asks whether a module
has hooks finds none. ``nn.Module`` itself stays as it is: graphs of models whose classes have a ``__call__`` of their
own are guarded by its attribute, and from torch 2.15 on also by the absence of the attribute in those classes. So the
table leaves such a class for good once torch compiles (``has_own_call``).

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


_attributes: Final[dict[type, Replacement]] = {}
"""The replaced attributes by the class that has them."""
_keepers: Final[list[Handle]] = []
_REPLICATE: Final = Replacement(
    Attribute(nn.Module, "_replicate_for_data_parallel"), _alias_replica, in_compiler=InCompiler.PRESENT
)


def keep_calls() -> Handle:
    """Keep the table in place, also while it has no sites, until the handle is removed."""
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
    """Return the site of a module; have the table in place."""
    place_table(module)
    return table.site(module)


def place_table(module: nn.Module) -> None:
    """Have the table in place in the class of a module, where its ``forward`` is.

    A class that torch derives from it for a while, as for a parametrization, inherits the attribute.
    """
    kind = type(module)
    written = (cls for cls in kind.__mro__ if "forward" in vars(cls) and cls is not nn.Module)
    kind = next(written, kind)
    if kind not in _attributes:
        in_compiler = InCompiler.RETIRED if has_own_call(kind) else InCompiler.ABSENT
        _attributes[kind] = Replacement(
            Attribute(kind, NAME), lambda _original, _listeners: table, in_compiler=in_compiler
        )
        _attributes[kind].hold(table)


def has_own_call(kind: type) -> bool:
    """Return whether a class of modules, or one derived from it, has a ``__call__`` that is not torch's.

    Dynamo traces such a ``__call__`` and guards each class on the way to ``nn.Module``. It never traces the call of its
    own wrapper, which has one too.
    """
    if kind.__call__ is not nn.Module.__call__:
        return not kind.__module__.startswith("torch._dynamo.")
    return any(map(has_own_call, kind.__subclasses__()))


def _release() -> None:
    """Leave the attributes of all classes as they were, unless there are sites or sessions."""
    if not len(table) and not _keepers:
        while _attributes:
            _, replacement = _attributes.popitem()
            replacement.release(table)


def drop_site(module: nn.Module) -> None:
    """Remove the site of a module, unless something is called there; a table without sites leaves its place."""
    site = table.find(module)
    if site is not None and not site.entries and not site.before:
        table.drop(module)
    _release()
