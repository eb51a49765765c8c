"""Hide autoprof's module hooks from ``torch.compile``, ``torch.export`` and ``torch.jit.script``.

A graph traced through a hooked module is guarded by the hooks: more checks at each call, and a recompilation when the
hooks are removed. A graph traced without them has no guard of ours, and hooks that return later leave it valid (torch
does not guard modules that had no hooks, ``skip_nnmodule_hook_guards``); inside a graph they do not fire anyway.

``torch.jit.script`` compiles a module's hooks too, and cannot compile ours. It asks a module for
``__prepare_scriptable__`` and scripts the object returned, so every module has such a method while a session is open.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import nn

from ..._process.replace import MISSING, Attribute, InCompiler, Replacement
from ..compiler import around_compiler
from ..handle import Handle
from .boundary import BoundaryProbe
from .module import ModuleProbe, Orphan
from .shapes import ShapeProbe

HOOKS: Final = ("_forward_pre_hooks", "_forward_hooks")
_FLAGS: Final = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


def is_ours(hook: Any) -> bool:
    """Return whether a module's hook is one of autoprof's."""
    return isinstance(getattr(hook, "__self__", None), (ModuleProbe, BoundaryProbe, ShapeProbe, Orphan))


def hide_hooks(modules: Iterable[nn.Module], compiled: Callable[[], None]) -> Handle:
    """Remove our hooks from these modules whenever torch compiles or scripts, until the handle is removed.

    ``compiled`` is called after each compilation. Sessions share the method for scripting.
    """
    handle, hidden = Handle(), _HiddenHooks(modules, compiled)
    handle.add(hidden.close)
    handle.add(around_compiler(hidden.start, hidden.end).remove)
    handle.add(lambda: _prepare_scriptable.release(handle))
    _prepare_scriptable.hold(handle)
    return handle


class _HiddenHooks:
    """The modules of one session, and the functions that restore their hooks."""

    def __init__(self, modules: Iterable[nn.Module], compiled: Callable[[], None]) -> None:
        self._modules = list(modules)
        self._restore: list[Callable[[], None]] = []
        self._started = False
        self._compiled = compiled

    def start(self) -> None:
        """Remove our hooks."""
        self._started = True
        if not self._restore:
            for module in self._modules:
                self._restore += [
                    _remove_hooks(module, name) for name in HOOKS if any(map(is_ours, getattr(module, name).values()))
                ]

    def end(self) -> None:
        """Restore them as they were."""
        if self._started:
            self._started = False
            self._compiled()
        while self._restore:
            self._restore.pop()()

    def close(self) -> None:
        """Forget the modules."""
        self._modules.clear()
        self._restore.clear()


def _remove_hooks(module: nn.Module, name: str) -> Callable[[], None]:
    hooks: OrderedDict[int, Any] = getattr(module, name)
    before = list(hooks.items())
    flags = [
        (table, key, table[key])
        for flag in _FLAGS
        for table in [getattr(module, flag)]
        for key, hook in before
        if is_ours(hook) and key in table
    ]
    for key, hook in before:
        if is_ours(hook):
            del hooks[key]
    for table, key, _ in flags:
        del table[key]

    def restore() -> None:
        added = [key for key in hooks if key not in dict(before)]
        for key, hook in before:
            if is_ours(hook):
                hooks[key] = hook
            if key in hooks:
                hooks.move_to_end(key)
        for key in added:
            hooks.move_to_end(key)
        for table, key, value in flags:
            table[key] = value

    return restore


def _without_hooks(module: nn.Module) -> nn.Module:
    """Return a module with the same parameters, buffers and children, without hooks of ours."""
    scripted = isinstance(module, torch.jit.ScriptModule)
    if scripted or not any(is_ours(hook) for one in module.modules() for name in HOOKS for hook in _hooks(one, name)):
        return module
    copy = type(module).__new__(type(module))
    vars(copy).update(vars(module))
    vars(copy)["_modules"] = vars(module)["_modules"].copy()  # torch puts copies of the children in there
    for name in HOOKS:
        kept = OrderedDict((key, hook) for key, hook in vars(module)[name].items() if not is_ours(hook))
        vars(copy)[name] = kept
    return copy


def _hooks(module: nn.Module, name: str) -> Any:
    return vars(module).get(name, {}).values()


_prepare_scriptable: Final = Replacement(
    Attribute(nn.Module, "__prepare_scriptable__"),
    lambda original, _listeners: _without_hooks if original is MISSING else original,
    in_compiler=InCompiler.PRESENT,
)
