"""Call functions around the calls of modules, without a hook on any module.

``nn.Module.__call__`` asks for the class attribute ``_compiled_call_impl`` and calls it in place of ``_call_impl``.
While a session is open, a table takes the attribute's place: for a module in the table it returns the module's *site*,
which calls its entries and, between them, what torch would have called. Nothing is stored in a module. So copies,
pickles and replicas of a module have no marks, compiled graphs have no guard of ours, and code that asks whether a
module has hooks finds none.

The table exists in C (``marks/call_site.c``) and here, with the same members. A torch without that attribute gets
public hooks in its place (``HookedCallTable``).
"""

from __future__ import annotations

import threading
import types
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from torch import nn

from ..._process.replace import Attribute, InCompiler, Replacement, never_compile, skip_frames
from ..handle import Handle
from ..marks.native import extension, uses_extension

NAME: Final = "_compiled_call_impl"
"""The attribute, which belongs to ``nn.Module.compile``."""

_nothing = nullcontext().__exit__  # takes any arguments, returns None, and pickles by name


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
        site = sites[key] = self._make(module, source, wraps, lambda _reference: sites.pop(key, None))
        return site

    def _make(self, module: nn.Module, source: Any, wraps: bool, gone: Callable[[Any], object]) -> Any:
        return PythonCallSite(module, source, wraps=wraps, gone=gone)


for _name in ("__get__", "__set__", "__delete__"):
    never_compile(getattr(PythonCallTable, _name))


class _HookedSite(PythonCallSite):
    """The marked calls of one module by public hooks, outermost. A copied hook finds a site without entries."""

    def __init__(self, module: nn.Module, source: Any, *, wraps: bool, gone: Any) -> None:
        super().__init__(module, source, wraps=wraps, gone=gone)
        self._handles: list[Any] = []
        self._calls = threading.local()

    def hook(self) -> None:
        """Attach the hooks. Called on the class: a scripted module has no such methods of its own."""
        module = self._module()
        if module is not None and not self._handles:
            before, after = nn.Module.register_forward_pre_hook, nn.Module.register_forward_hook
            self._handles.append(before(module, self.pre, prepend=True, with_kwargs=True))
            self._handles.append(after(module, self.post, with_kwargs=True, always_call=True))

    def unhook(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def pre(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Call the functions before a call of the module."""
        if not isinstance(self, _HookedSite):  # the hook of a copy
            return
        marked, shown = (self, module) if self._source is None else (self._source, self._source._module())
        stack = self._stack()
        if shown is None or self._inside:
            stack.append(None)
            return
        marked._inside += self._wraps
        stack.append((marked, marked.begin(shown, args, kwargs), shown))

    def post(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Call all that is called after the module."""
        if not isinstance(self, _HookedSite):
            return
        stack = self._stack()
        call = stack.pop() if stack else None
        if call is not None:
            marked, entered, shown = call
            marked._inside -= self._wraps
            marked.end(entered, shown, args, kwargs, output)

    def _stack(self) -> list[Any]:
        stack: list[Any] = self._calls.__dict__.setdefault("stack", [])
        return stack

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return types.SimpleNamespace(pre=_nothing, post=_nothing)

    def __reduce__(self) -> tuple[Any, ...]:
        return types.SimpleNamespace, (), {"pre": _nothing, "post": _nothing}


for _name in ("pre", "post"):
    skip_frames(getattr(_HookedSite, _name), callees=True)


class HookedCallTable(PythonCallTable):
    """The same by public hooks, for a torch without ``Module._compiled_call_impl``."""

    def drop(self, module: nn.Module) -> None:
        """Remove the site of a module, and its hooks."""
        site = self.find(module)
        if site is not None:
            site.unhook()
        super().drop(module)

    def _make(self, module: nn.Module, source: Any, wraps: bool, gone: Callable[[Any], object]) -> Any:
        site = _HookedSite(module, source, wraps=wraps, gone=gone)
        site.hook()
        return site


HAS_CALL_ATTRIBUTE: Final = NAME in vars(nn.Module)
"""Whether this torch has the attribute; if not, modules are hooked."""


def _make_table() -> Any:
    if not HAS_CALL_ATTRIBUTE:
        return HookedCallTable()
    return extension.CallTable() if uses_extension() else PythonCallTable()


table: Final[Any] = _make_table()
"""The modules of all sessions."""
CallEntry: Final[Any] = extension.CallEntry if HAS_CALL_ATTRIBUTE and uses_extension() else PythonCallEntry


def _alias_replica(original: Any, listeners: list[Any]) -> Any:
    def _replicate_for_data_parallel(self: nn.Module) -> nn.Module:
        replica: nn.Module = original(self)
        site = table.find(self)
        if site is not None and not isinstance(table, HookedCallTable):  # hooks are copied with the module's attributes
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
    replacements = (_ATTRIBUTE, _REPLICATE) if HAS_CALL_ATTRIBUTE else ()
    for replacement in replacements:
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
    if HAS_CALL_ATTRIBUTE and not _ATTRIBUTE.in_place:
        _ATTRIBUTE.hold(_own)
    return table.site(module)


def _drop_empty(module: nn.Module, site: Any) -> None:
    if not site.entries and not site.before:
        table.drop(module)
        _release_empty()


def _release_empty() -> None:
    if not len(table) and HAS_CALL_ATTRIBUTE:
        _ATTRIBUTE.release(_own)
