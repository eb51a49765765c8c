"""Call functions around the calls of modules, without a hook on any module.

``nn.Module.__call__`` asks for the class attribute ``_compiled_call_impl`` and calls it in place of ``_call_impl``.
While a session is open, a table takes the attribute's place: for a module in the table it returns the module's *site*,
which calls its entries and, between them, what torch would have called. Nothing is stored in a module. So copies,
pickles and replicas of a module have no marks, compiled graphs have no guard of ours, and code that asks whether a
module has hooks finds none.

The table exists in C (``marks/call_site.c``) and here, with the same members.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torch import nn

from ..._process.replace import Attribute, InCompiler, Replacement, never_compile
from ..handle import Handle
from ..marks.native import extension, uses_extension

NAME: Final = "_compiled_call_impl"
"""The attribute, which belongs to ``nn.Module.compile``."""


class PythonCallEntry:
    """The functions called around the calls of a module, each with the owner first; None for no function.

    ``enter(owner, module, args, kwargs)`` and ``leave(owner, module, args, kwargs, output, call)``: ``call`` is what
    ``enter`` returned, and the output of a call that raised is None. The other arguments are for the usual case in C.
    """

    __slots__ = ("enter", "leave", "owner")

    def __init__(
        self, owner: Any, enter: Any, leave: Any, context: Any = None, on_error: Any = None, code: int = 0
    ) -> None:
        self.owner, self.enter, self.leave = owner, enter, leave


class PythonCallSite:
    """The marked calls of one module."""

    def __init__(
        self, module: nn.Module, source: PythonCallSite | None = None, *, wraps: bool = False, gone: Any = None
    ) -> None:
        self._module = weakref.ref(module, gone)
        self._source = source
        self._wraps = wraps
        self._inside = 0
        self.entries: tuple[PythonCallEntry, ...] = ()
        """Outermost first."""
        self.before: tuple[Callable[[nn.Module], object], ...] = ()
        """The functions called with the module before its entries are looked up."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        assert module is not None
        marked = self if self._source is None else self._source
        shown = marked._module() if self._wraps else module
        if shown is None or self._inside or not (marked.entries or marked.before):
            return _call_through(module, args, kwargs)
        marked._inside += self._wraps
        output, entered = None, marked.begin(shown, args, kwargs)
        try:
            output = _call_through(module, args, kwargs)
            return output
        finally:
            marked._inside -= self._wraps
            marked.end(entered, shown, args, kwargs, output)

    def begin(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Call the functions before a call of the module; return the chain of the entries with their results."""
        for function in self.before:
            function(module)
        entered: Any = None
        for entry in self.entries:
            call = None if entry.enter is None else entry.enter(entry.owner, module, args, kwargs)
            entered = entry, call, entered
        return entered

    def end(self, entered: Any, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Call all that is called after the module, of the entries that were not removed meanwhile."""
        while entered is not None:
            entry, call, entered = entered
            if entry.leave is not None and entry in self.entries:
                entry.leave(entry.owner, module, args, kwargs, output, call)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _call_through(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Call what torch would have called."""
    compiled = vars(module).get(NAME)
    return (module._call_impl if compiled is None else compiled)(*args, **kwargs)


for _name in ("__call__", "begin", "end"):
    never_compile(getattr(PythonCallSite, _name))
never_compile(_call_through)


class PythonCallTable:
    """The modules whose calls are marked, in place of ``Module._compiled_call_impl``."""

    def __init__(self) -> None:
        self._sites: dict[int, PythonCallSite] = {}

    def __len__(self) -> int:
        return len(self._sites)

    def __get__(self, module: Any, kind: Any = None) -> Any:
        if module is None:
            return None
        site = self._sites.get(id(module))
        return vars(module).get(NAME) if site is None else site

    def __set__(self, module: Any, value: Any) -> None:
        vars(module)[NAME] = value

    def __delete__(self, module: Any) -> None:
        try:
            del vars(module)[NAME]
        except KeyError:
            raise AttributeError(NAME) from None

    def site(self, module: nn.Module) -> Any:
        """Return the site of a module, a new one where it has none."""
        found = self._sites.get(id(module))
        return self._add(module) if found is None else found

    def find(self, module: nn.Module) -> Any:
        """Return the site of a module, or None."""
        return self._sites.get(id(module))

    def alias(self, module: nn.Module, source: Any, *, wraps: bool) -> Any:
        """Give a module the entries of another one's site: a replica of that module, or a module that wraps it."""
        return self._add(module, source, wraps)

    def drop(self, module: nn.Module) -> None:
        """Remove the site of a module."""
        self._sites.pop(id(module), None)

    def _add(self, module: nn.Module, source: Any = None, wraps: bool = False) -> Any:
        key, sites = id(module), self._sites
        site = sites[key] = PythonCallSite(module, source, wraps=wraps, gone=lambda _reference: sites.pop(key, None))
        return site


for _name in ("__get__", "__set__", "__delete__"):
    never_compile(getattr(PythonCallTable, _name))


table: Final[Any] = extension.CallTable() if uses_extension() else PythonCallTable()
"""The modules of all sessions."""
CallEntry: Final[Any] = extension.CallEntry if uses_extension() else PythonCallEntry


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
