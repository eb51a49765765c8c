"""Attach hooks to a module: its calls mark forward and recompute, the autograd nodes of their tensors mark backward.

A hook is a bound method: the cheapest callable that can decide how it is copied. ``copy.deepcopy(model)`` binds each
copied hook to an ``Orphan``, which removes it at the copy's first call; a pickle holds functions of the standard
library that do nothing, so that it loads where autoprof is not installed.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from ..._process.signals import raised_by_handler
from ...devices import Memory
from ...frame import Phase
from ..marks import MEMORY
from ..recorder import Recorder
from .autograd_hooks import HookPair
from .cross_device import hooks_by_input
from .hook_owner import HookOwner
from .hooks import Hooks

if TYPE_CHECKING:
    from ..._targets import Target

_nothing = contextlib.nullcontext().__exit__  # takes any arguments, returns None, and pickles by name

_HOOKS = ("enter", "leave", "remember", "note")

HookTables = tuple[dict[int, Any], ...]
hidden_hooks: Final[dict[int, HookTables]] = {}
"""By the id of each module in a compiled call, our part of its ``hook_tables``: it is not on the module meanwhile."""

# Called on the class: a scripted module has no such methods of its own, but runs the hooks when Python calls it.
_hook_before, hook_after = nn.Module.register_forward_pre_hook, nn.Module.register_forward_hook


class ModuleProbe(HookOwner):
    """Attach and detach the hooks of one module, made by ``make_hooks``."""

    __slots__ = ("_attached", "_calls", "_enter", "_leave", "_memory", "_placement", "_tracks_backward", "recorder")
    where = "module hooks"
    _enter: Any
    _leave: Any

    def __init__(self, recorder: Recorder, hooks: Hooks, target: Target, memory: Memory | None = None) -> None:
        phases, shown = target.phases, target.shown
        super().__init__(target.module, recorder.label(target.name, target.fqn, Phase.FORWARD, phases, shown=shown))
        self.recorder = recorder
        self._attached = False
        self._memory = memory if target.memory else None
        self._tracks_backward = Phase.BACKWARD in target.phases
        self._calls: dict[int, list[Any]] = {}
        self._placement: tuple[Any, ...] | None = None
        self.place(hooks)

    def place(
        self,
        hooks: Hooks,
        device: int | None = None,
        home: int | None = None,
        *,
        several: bool = False,
        by_input: bool = False,
    ) -> None:
        """Make the hooks for a module on ``device`` of a model whose home device is ``home``.

        ``several``: the model is on several devices; ``by_input``: each call runs on the device of its input.
        """
        placement = device, home, several, by_input
        if placement == self._placement:
            return
        self._placement = placement
        attached = self._attached
        self.detach()

        def make(index: int | None) -> HookPair:
            place = None if index == home else index
            return hooks.tracking(place, several) if self._tracks_backward else hooks.plain(place)

        pair = hooks_by_input(self.recorder, make, device, self._calls, self) if by_input else make(device)
        self._enter, self._leave = (types.MethodType(hook, self) for hook in pair)
        if self._memory is not None and device is not None:
            self._memory = self._memory.on(device)
        if attached:
            self.attach()

    def attach(self) -> None:
        """Hook the module: our hooks outermost, so that the time of other hooks belongs to the module."""
        if self._attached:
            return
        self.open_calls.clear()  # a call that Ctrl-C ended, or a detach inside it, leaves its ordinal behind
        self.open_calls_of_threads.clear()
        self._calls.clear()
        self._attached = True
        module = self.module
        _hook_before(module, self._enter, prepend=True, with_kwargs=self._tracks_backward)
        for key, hook in [*module._forward_pre_hooks.items()]:
            if getattr(getattr(hook, "__self__", None), "ends_step", False) is True:
                module._forward_pre_hooks.move_to_end(key, last=False)
        if self._memory is not None:
            _hook_before(module, self.remember)
        hook_after(module, self._leave, always_call=True)
        if self._memory is not None:
            hook_after(module, self.remember, always_call=True)

    def detach(self) -> None:
        """Remove the hooks that are attached, also after an attach that was interrupted."""
        if self._attached:
            remove_hooks(self.module, lambda owner: owner is self)
            self._attached = False

    def remove(self) -> None:
        """Remove the hooks for good; nothing that the probe holds leads back to it."""
        self.detach()
        self._enter = self._leave = _nothing

    def remember(self, module: nn.Module, *_args: Any) -> None:
        """Record the memory at the mark just made."""
        if torch.compiler.is_dynamo_compiling():
            return
        try:
            memory, began = self._memory, thread_time_ns()
            for value in memory.at_mark():  # type: ignore[union-attr]
                self.recorder.mark_value(MEMORY, value)
            memory.spent_ns += thread_time_ns() - began  # type: ignore[union-attr]
        except Exception as error:
            self.fail(module, error)

    def fail(self, module: nn.Module, error: Exception | None = None) -> None:
        """Count a failure of ours and remove the hooks; the user's call continues."""
        self.recorder.handle_failure(self.where)
        if not _walks_hooks(error):
            with contextlib.suppress(Exception):
                self.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> Orphan:
        return Orphan()

    def __reduce__(self) -> tuple[Any, ...]:
        return types.SimpleNamespace, (), dict.fromkeys(_HOOKS, _nothing)


class Orphan:
    """The owner that the hooks of a copied module are bound to; such a hook only calls ``fail``."""

    __slots__ = ()

    def fail(self, module: nn.Module, error: Exception | None = None) -> None:
        """Remove all orphaned hooks of this module: a copy is not profiled, and its calls are fast again."""
        if not _walks_hooks(error):
            remove_hooks(module, lambda owner: isinstance(owner, Orphan))
        if error is not None and raised_by_handler(error):
            raise error

    def __deepcopy__(self, memo: dict[int, Any]) -> Orphan:
        return self

    __reduce__ = ModuleProbe.__reduce__


def _walks_hooks(error: Exception | None) -> bool:
    """Tell whether torch may be iterating over a module's hooks when this error of ours occurs.

    It does so while an exception of the user's propagates, to call hooks that were registered with ``always_call``.
    """
    return error is not None and error.__context__ is not None


def hook_tables(module: nn.Module) -> HookTables:
    """Return the tables of a module's hooks before and after its forward, and the tables of flags of these hooks."""
    return (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._forward_pre_hooks_with_kwargs,
        module._forward_hooks_with_kwargs,
        module._forward_hooks_always_called,
    )


def remove_hooks(module: nn.Module, owned: Callable[[object], bool]) -> None:
    """Remove the forward hooks whose owner fulfils ``owned``, also those hidden from a call that is running."""
    hidden = hidden_hooks.get(id(module))
    for before, after, *flags in (hook_tables(module),) if hidden is None else (hook_tables(module), hidden):
        for hooks in (before, after):
            for key in [key for key, hook in hooks.items() if owned(getattr(hook, "__self__", None))]:
                del hooks[key]
                for flag in flags:
                    flag.pop(key, None)
