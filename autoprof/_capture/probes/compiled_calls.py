"""Call a module's hooks around each call that ``torch.compile`` runs in its place.

``torch.compile(model)`` returns a wrapper (``OptimizedModule``) and leaves the model as it is; ``model.compile()``
gives the module a call of its own. Inside either, torch skips the hooks of the module or compiles them, some of them or
all. So they are called around it, whichever of the two objects the program gave to ``instrument``, and are removed
while it runs.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, Final

import wrapt
from torch import nn

from ..._process.failures import contain, ignore
from ..._process.replace import Attribute, InCompiler, Replacement, never_compile, skip_frames
from ..compiler import around_compiler
from ..handle import Handle
from .hook_hiding import is_ours
from .module import ModuleProbe, Orphan, hidden_hooks, hook_tables, remove_hooks

_EVAL_FRAME: Final = "torch._dynamo.eval_frame"
_WRAPPER: Final = "OptimizedModule"
_IN_PLACE: Final = "_compiled_call_impl"
_hook_before, _hook_after = nn.Module.register_forward_pre_hook, nn.Module.register_forward_hook

_open: list[_CompiledCalls] = []
_import_hook_set = False


def relay_compiled_calls(
    modules: Iterable[tuple[nn.Module, nn.Module]],
    unwrap: Callable[[nn.Module], nn.Module],
    called: Callable[[], None],
) -> Handle:
    """Call the hooks of these modules around their compiled calls, until the handle is removed.

    ``modules`` are pairs: a module without its wrappers, which ``unwrap`` returns, and the module that has the hooks.
    ``called`` is called at the first compiled call of each. Modules that are compiled later are found, too.
    """
    calls, handle = _CompiledCalls(modules, unwrap, called), Handle()
    handle.add(calls.close)
    handle.add(around_compiler(calls.hide, calls.show).remove)
    calls.begin()
    return handle


class _CompiledCalls:
    """The modules of one session, and the relays of their compiled calls."""

    def __init__(
        self,
        modules: Iterable[tuple[nn.Module, nn.Module]],
        unwrap: Callable[[nn.Module], nn.Module],
        called: Callable[[], None],
    ) -> None:
        self._modules = {id(inner): (inner, hooked) for inner, hooked in modules}
        self._unwrap = unwrap
        self._called = called
        self._relays: list[_WrapperRelay | _InPlaceRelay] = []

    def begin(self) -> None:
        """Relay the calls of modules that are compiled already, and wait for others to be."""
        global _import_hook_set
        _open.append(self)
        for inner, _hooked in [*self._modules.values()]:
            self.compiled_in_place(inner)
        _compile_method.hold(self)
        if _EVAL_FRAME in sys.modules:
            self.find_wrappers(sys.modules[_EVAL_FRAME])
        elif not _import_hook_set:
            _import_hook_set = True
            wrapt.register_post_import_hook(_imported, _EVAL_FRAME)

    def find_wrappers(self, eval_frame: Any) -> None:
        """Relay the calls of the wrappers that exist, and of those made from now on."""
        kind = getattr(eval_frame, _WRAPPER, None)
        if kind is None:  # a torch without this class
            return
        _made_wrapper(kind).hold(self)
        for wrapper in gc.get_referrers(kind):
            if type(wrapper) is kind:
                self.wrapped(wrapper)

    def wrapped(self, wrapper: Any) -> None:
        """Relay the calls of a wrapper, if it wraps one of the modules. Never raises."""
        with contain(ignore):
            _inner, hooked = self._modules.get(id(self._unwrap(wrapper)), (None, None))
            if hooked is not None and hooked is not wrapper:
                self._add(_WrapperRelay(wrapper, hooked, self._called))

    def compiled_in_place(self, module: nn.Module) -> None:
        """Relay the calls of a module that is compiled in place, if it is one of the modules. Never raises."""
        with contain(ignore):
            inner, _hooked = self._modules.get(id(module), (None, None))
            if inner is module and getattr(module, _IN_PLACE, None) is not None:
                self._add(_InPlaceRelay(module, self._called))

    def _add(self, relay: _WrapperRelay | _InPlaceRelay) -> None:
        self._relays = [one for one in self._relays if one.is_alive and not one.replaced_by(relay)]
        self._relays.append(relay)
        relay.attach()

    def hide(self) -> None:
        """Remove the hooks on wrappers: torch compiles code that may call them."""
        for relay in self._relays:
            relay.hide()

    def show(self) -> None:
        """Attach them again."""
        for relay in self._relays:
            relay.show()

    def close(self) -> None:
        """Relay no more."""
        if self in _open:
            _open.remove(self)
        for relay in self._relays:
            with contain(ignore):
                relay.close()
        self._relays.clear()
        self._modules.clear()
        _compile_method.release(self)
        if _wrapper_init is not None:
            _wrapper_init.release(self)


class _Relay:
    """Call the hooks of one module around a compiled call, and remove them meanwhile."""

    __slots__ = ("_called", "_hidden", "_module")

    def __init__(self, module: nn.Module, called: Callable[[], None]) -> None:
        self._module = module
        self._called: Callable[[], None] | None = called
        self._hidden = False

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the hooks before the call, and remove them all."""
        module = self._module
        if self._hidden:  # a Ctrl-C ended the call before
            self._restore()
        if self._called is not None:
            called, self._called = self._called, None
            called()
        hooks, with_kwargs = module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs
        for key, hook in [*hooks.items()]:
            if is_ours(hook):
                hook(module, args, kwargs) if key in with_kwargs else hook(module, args)
        if id(module) not in hidden_hooks:
            tables = hook_tables(module)
            keys = {key for hooks in tables[:2] for key, hook in hooks.items() if is_ours(hook)}
            if keys:
                self._hidden = True
                hidden_hooks[id(module)] = tuple(
                    {key: table.pop(key) for key in [*table] if key in keys} for table in tables
                )

    def end(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Put the hooks back, and call those after the call."""
        module = self._module
        if self._hidden:
            self._restore()
        with_kwargs = module._forward_hooks_with_kwargs
        for key, hook in [*module._forward_hooks.items()]:
            if is_ours(hook):
                hook(module, args, kwargs, output) if key in with_kwargs else hook(module, args, output)

    def detach(self) -> None:
        """Relay no more; a part of ``close``."""

    def close(self) -> None:
        """Relay no more; hooks that a running call has removed are put back first."""
        if self._hidden:
            self._restore()
        self.detach()

    def _restore(self) -> None:
        """Put the hooks back around those of others."""
        self._hidden = False
        for table, ours in zip(hook_tables(self._module), hidden_hooks.pop(id(self._module), ()), strict=False):
            others = {} if table is self._module._forward_hooks else {**table}
            if others:
                table.clear()
            table.update(ours)
            table.update(others)


for _method in (_Relay.begin, _Relay.end):
    skip_frames(_method, callees=True)


class _WrapperRelay(_Relay):
    """Relay the calls of a wrapper that ``torch.compile`` made. Its hooks are bound to it, and die with a copy."""

    __slots__ = ("_attached", "_wrapper")

    def __init__(self, wrapper: nn.Module, module: nn.Module, called: Callable[[], None]) -> None:
        super().__init__(module, called)
        self._wrapper = weakref.ref(wrapper)
        self._attached = False

    @property
    def is_alive(self) -> bool:
        """Whether the wrapper still exists."""
        return self._wrapper() is not None

    def replaced_by(self, other: Any) -> bool:
        """Return whether the other relay is one of the same wrapper."""
        return False

    def attach(self) -> None:
        """Hook the wrapper, outermost."""
        wrapper = self._wrapper()
        if wrapper is not None and not self._attached:
            self._attached = True
            _hook_before(wrapper, MethodType(_enter, self), prepend=True, with_kwargs=True)
            _hook_after(wrapper, MethodType(_leave, self), with_kwargs=True, always_call=True)

    show = attach

    def detach(self) -> None:
        """Remove the hooks."""
        wrapper = self._wrapper()
        self._attached = False
        if wrapper is not None:
            remove_hooks(wrapper, lambda owner: owner is self)

    hide = detach

    def fail(self, module: nn.Module, error: Exception | None = None) -> None:
        """Do nothing: the hooks that are called handle their failures."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Orphan:
        return Orphan()

    __reduce__ = ModuleProbe.__reduce__


def _enter(self: Any, wrapper: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    self.begin(args, kwargs) if isinstance(self, _Relay) else self.fail(wrapper)


def _leave(self: Any, wrapper: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    self.end(args, kwargs, output) if isinstance(self, _Relay) else self.fail(wrapper)


for _hook in (_enter, _leave):
    skip_frames(_hook, callees=True)


class _InPlaceRelay(_Relay):
    """Relay the calls of a module that is compiled in place. Neither a copy nor a pickle has its compiled call."""

    __slots__ = ("_original", "_ours")
    is_alive = True

    def attach(self) -> None:
        """Put a function that relays in the place of the compiled call."""
        module, relay = self._module, self
        original: Any = getattr(module, _IN_PLACE)

        @functools.wraps(original)
        def compiled_call(*args: Any, **kwargs: Any) -> Any:
            output = None
            relay.begin(args, kwargs)
            try:
                output = original(*args, **kwargs)
            finally:
                relay.end(args, kwargs, output)
            return output

        never_compile(compiled_call)
        self._original, self._ours = original, compiled_call
        setattr(module, _IN_PLACE, compiled_call)

    def replaced_by(self, other: Any) -> bool:
        """Return whether the other relay is one of the same module, which is compiled anew."""
        return isinstance(other, _InPlaceRelay) and other._module is self._module

    def detach(self) -> None:
        """Put the compiled call back; one that was put there since stays."""
        if vars(self._module).get(_IN_PLACE) is self._ours:
            setattr(self._module, _IN_PLACE, self._original)

    def hide(self) -> None:
        """Do nothing: a graph around the module is traced through its ``forward``."""

    show = hide


def _report_compile(original: Any, listeners: list[Any]) -> Any:
    @functools.wraps(original)
    def compile(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        for calls in _open[:]:
            calls.compiled_in_place(self)
        return result

    return compile


def _report_wrapper(original: Any, listeners: list[Any]) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for calls in _open[:]:
            calls.wrapped(self)

    return __init__


_compile_method: Final = Replacement(Attribute(nn.Module, "compile"), _report_compile, in_compiler=InCompiler.PRESENT)
_wrapper_init: Replacement | None = None


def _made_wrapper(kind: Any) -> Replacement:
    global _wrapper_init
    if _wrapper_init is None:
        _wrapper_init = Replacement(Attribute(kind, "__init__"), _report_wrapper, in_compiler=InCompiler.PRESENT)
    return _wrapper_init


def _imported(eval_frame: Any) -> None:
    for calls in _open[:]:
        with contain(ignore):
            calls.find_wrappers(eval_frame)
