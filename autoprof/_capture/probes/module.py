"""Hooks on modules: forward and recompute by the calls themselves, backward by the autograd nodes of their tensors.

A hook is a bound method, the cheapest callable that can say what a copy of it is. ``copy.deepcopy(model)`` gives
each copied hook an orphan to be bound to, which takes itself off the copy at the copy's first call; a pickle holds
functions of the standard library that do nothing, so that it loads where autoprof is not installed.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..._process.signals import raised_by_handler
from ...devices import Memory
from ...frame import Phase
from ..marks import MEMORY
from ..recorder import Recorder
from .autograd_hooks import Pair
from .cross_device import hooks_by_input
from .hook_state import HookState
from .hooks import Hooks

if TYPE_CHECKING:
    from ..._targets import Target

_nothing = contextlib.nullcontext().__exit__  # takes any arguments, returns None, and pickles by name

_HOOKS = ("enter", "leave", "remember", "note")

# A scripted module refuses these as methods of its own, but runs the hooks when Python calls it.
_hook_before, hook_after = nn.Module.register_forward_pre_hook, nn.Module.register_forward_hook


class ModuleProbe(HookState):
    """The hooks of one module, attached and detached as a whole; what they are is for ``make_hooks`` to say."""

    __slots__ = ("_attached", "_calls", "_device", "_enter", "_follows", "_leave", "_memory", "recorder")
    where = "module hooks"

    def __init__(self, recorder: Recorder, hooks: Hooks, target: Target, memory: Memory | None = None) -> None:
        super().__init__(target.module, recorder.label(target.name, target.fqn, Phase.FORWARD, target.phases))
        self.recorder = recorder
        self._attached = False
        self._memory = memory if target.memory else None
        self._follows = Phase.BACKWARD in target.phases
        self._calls: dict[int, list[Any]] = {}
        self._device: tuple[Any, ...] | None = None
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
        """Make the hooks for a module on this device of a model whose home is another, or the same, one.

        ``several`` says that the model spans several devices; ``by_input`` that each call is where its input is.
        """
        told = device, home, several, by_input
        if told == self._device:
            return
        self._device = told
        attached = self._attached
        self.detach()

        def make(index: int | None) -> Pair:
            place = None if index == home else index
            return hooks.following(place, several) if self._follows else hooks.plain(place)

        pair = hooks_by_input(self.recorder, make, device, self._calls, self) if by_input else make(device)
        self._enter, self._leave = (types.MethodType(hook, self) for hook in pair)
        if self._memory is not None and device is not None:
            self._memory = self._memory.on(device)
        if attached:
            self.attach()

    def attach(self) -> None:
        """Hook the module: ours outermost, so that what the hooks of others do belongs to the module."""
        if self._attached or getattr(self.module, "_compiled_call_impl", None) is not None:
            return  # compiled in place, its hooks never fire, but decide what torch compiles
        self.open.clear()  # a call cut short by Ctrl-C, or by detaching inside it, leaves its ordinal behind
        self.beside.clear()
        self._calls.clear()
        self._attached = True
        module = self.module
        _hook_before(module, self._enter, prepend=True, with_kwargs=self._follows)
        for key, hook in [*module._forward_pre_hooks.items()]:
            if getattr(getattr(hook, "__self__", None), "ends_step", False) is True:
                module._forward_pre_hooks.move_to_end(key, last=False)
        if self._memory is not None:
            _hook_before(module, self.remember)
        hook_after(module, self._leave, always_call=True)
        if self._memory is not None:
            hook_after(module, self.remember, always_call=True)

    def detach(self) -> None:
        """Take the hooks off: those that are there, also where attaching was cut short."""
        if self._attached:
            take_off(self.module, lambda owner: owner is self)
            self._attached = False

    def remember(self, module: nn.Module, *_args: Any) -> None:
        """Record the memory at the mark just made."""
        if torch.compiler.is_dynamo_compiling():
            return
        try:
            memory, began = self._memory, perf_counter_ns()
            for value in memory.at_mark():  # type: ignore[union-attr]
                self.recorder.mark_value(MEMORY, value)
            memory.spent_ns += perf_counter_ns() - began  # type: ignore[union-attr]
        except Exception as error:
            self.fail(module, error)

    def fail(self, module: nn.Module, error: Exception | None = None) -> None:
        """Take the hooks off after a failure of ours and count it; the user's call goes on."""
        self.recorder.handle_failure(self.where)
        if not _walks_hooks(error):
            with contextlib.suppress(Exception):
                self.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> Orphan:
        return Orphan()

    def __reduce__(self) -> tuple[Any, ...]:
        return types.SimpleNamespace, (), dict.fromkeys(_HOOKS, _nothing)


class Orphan:
    """What the hooks of a copied module are bound to; a hook that finds itself bound to one only calls ``fail``."""

    __slots__ = ()

    def fail(self, module: nn.Module, error: Exception | None = None) -> None:
        """Take all orphaned hooks off this module: a copy is not profiled, and its calls are fast again."""
        if not _walks_hooks(error):
            take_off(module, lambda owner: isinstance(owner, Orphan))
        if error is not None and raised_by_handler(error):
            raise error

    def __deepcopy__(self, memo: dict[int, Any]) -> Orphan:
        return self

    __reduce__ = ModuleProbe.__reduce__


def _walks_hooks(error: Exception | None) -> bool:
    """Tell whether torch may be walking through a module's hooks when this error of ours comes up.

    It does so while an exception of the user's is on its way, to call those that are always called.
    """
    return error is not None and error.__context__ is not None


def take_off(module: nn.Module, whose: Callable[[object], bool]) -> None:
    """Take the forward hooks off whose owner is the one."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key in [key for key, hook in hooks.items() if whose(getattr(hook, "__self__", None))]:
            del hooks[key]
            for flags in (
                module._forward_pre_hooks_with_kwargs,
                module._forward_hooks_with_kwargs,
                module._forward_hooks_always_called,
            ):
                flags.pop(key, None)
