"""Mark the calls that ``torch.compile`` runs in a module's place, around them.

``torch.compile(model)`` returns a wrapper (``OptimizedModule``) and leaves the model as it is; calls of the wrapper are
marked as calls of the model, whichever of the two the program gave to ``instrument``. ``model.compile()`` gives the
module a call of its own, which its call site calls in place of ``forward``. Inside either, nothing is marked.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import wrapt
from torch import nn

from ...base.failures import contain, ignore
from ...base.process.replace import Attribute, InCompiler, Replacement, call_after
from .call_sites import drop_site, site_of, table

_open: list[CompiledCalls] = []
_compile_method: Final = Replacement(Attribute(nn.Module, "compile"), call_after, in_compiler=InCompiler.PRESENT)
_wrapper_init: Final[dict[type, Replacement]] = {}
"""The class of the wrappers, and the replacement of its ``__init__``; empty until it is imported."""


class CompiledCalls:
    """The modules of one session, and the wrappers around them, whose calls are marked until ``close``.

    ``modules`` are pairs: a module without its wrappers, which ``unwrap`` returns, and the module that is marked.
    ``found`` is called for each that is compiled, now or later.
    """

    def __init__(
        self,
        modules: Iterable[tuple[nn.Module, nn.Module]],
        unwrap: Callable[[nn.Module], nn.Module],
        found: Callable[[], None],
    ) -> None:
        pairs = tuple(modules)
        self._inner = weakref.WeakValueDictionary({id(inner): inner for inner, _ in pairs})
        self._marked = weakref.WeakValueDictionary({id(inner): marked for inner, marked in pairs})
        self._unwrap = unwrap
        self._found = found
        self._wrappers: list[weakref.ref[nn.Module]] = []

    def begin(self) -> None:
        """Mark the calls of wrappers that exist, and wait for others to be made."""
        _await_wrappers()
        _open.append(self)
        for inner in [*self._inner.values()]:
            self._compiled_in_place(inner)
        _compile_method.hold(self)
        _compile_method.listen(self._compiled_in_place)
        self.find_wrappers()

    def find_wrappers(self) -> None:
        """Mark the calls of the wrappers that exist, and of those made from now on."""
        for kind, made in _wrapper_init.items():
            made.hold(self)
            made.listen(self._wrapped)
            for wrapper in gc.get_referrers(kind):
                if type(wrapper) is kind:
                    self._wrapped(wrapper)

    def _wrapped(self, wrapper: Any) -> None:
        """Mark the calls of a wrapper, if it wraps one of the modules. Never raises."""
        with contain(ignore):
            marked = self._marked.get(id(self._unwrap(wrapper)))
            if marked is not None and marked is not wrapper:
                self._wrappers = [one for one in self._wrappers if one() is not None]
                self._wrappers.append(weakref.ref(wrapper))
                table.alias(wrapper, site_of(marked), wraps=True)  # its entries are not called inside as well
                self._found()

    def _compiled_in_place(self, module: nn.Module) -> None:
        """Report a module that is compiled in place, if it is one of the modules. Never raises."""
        with contain(ignore):
            if self._inner.get(id(module)) is module and vars(module).get("_compiled_call_impl") is not None:
                self._found()

    def close(self) -> None:
        """Mark no more wrappers."""
        if self in _open:
            _open.remove(self)
        for reference in self._wrappers:
            wrapper = reference()
            if wrapper is not None:
                with contain(ignore):
                    table.drop(wrapper)
                    drop_site(wrapper)
        self._wrappers.clear()
        self._inner.clear()
        self._marked.clear()
        _compile_method.ignore(self._compiled_in_place)
        _compile_method.release(self)
        for made in _wrapper_init.values():
            made.ignore(self._wrapped)
            made.release(self)


@cache
def _await_wrappers() -> None:
    """Have the class of the wrappers found when it is imported, at once where it is."""
    wrapt.register_post_import_hook(_imported, "torch._dynamo.eval_frame")


def _imported(eval_frame: Any) -> None:
    kind = getattr(eval_frame, "OptimizedModule", None)
    if kind is not None:  # a torch without this class has no wrappers
        _wrapper_init[kind] = Replacement(Attribute(kind, "__init__"), call_after, in_compiler=InCompiler.PRESENT)
    for calls in _open[:]:
        with contain(ignore):
            calls.find_wrappers()
