"""The hook on the model itself, or on the modules that a program calls instead: it reports each of their forwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..._process.replace import skip_frames
from ..._process.signals import raised_by_handler
from .module import ModuleProbe, Orphan, remove_hooks

_compiling = torch.compiler.is_dynamo_compiling


def _owner(hook: Callable[..., Any]) -> object:
    return getattr(hook, "__self__", None)


class BoundaryProbe:
    """Call a function with the module before each forward of it.

    It runs before the hooks of the module's own ``ModuleProbe``: their first mark belongs to the step that begins here.
    A copy of the hook behaves like that of a ``ModuleProbe``.
    """

    __slots__ = ("_before", "_module")
    ends_step = True

    def __init__(self, module: nn.Module, before: Callable[[nn.Module], None]) -> None:
        self._before = before
        self._module = module

    def attach(self) -> None:
        """Hook the module."""
        # Not as a method: a scripted model refuses it, but runs the hook.
        nn.Module.register_forward_pre_hook(self._module, self.enter, prepend=True, with_kwargs=True)

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Report that a forward begins."""
        if _compiling():
            return
        if not isinstance(self, BoundaryProbe):
            self.fail(module)
            return
        new = RemovableHandle.next_id  # the key of the next hook to be registered
        before = [*module._forward_pre_hooks.values()]
        self._before(module)
        if new == RemovableHandle.next_id:
            return
        # A hook attached by the step that begins is too late for this call's list of hooks: it is called from here,
        # unless its probe was attached before too, for the list still has that hook.
        called = {id(_owner(hook)) for hook in before}
        for key, hook in [*module._forward_pre_hooks.items()]:
            if key >= new and isinstance(_owner(hook), ModuleProbe) and id(_owner(hook)) not in called:
                hook(module, args, kwargs) if key in module._forward_pre_hooks_with_kwargs else hook(module, args)

    def fail(self, module: nn.Module, error: Exception | None = None) -> None:
        """Report the forward after all: an attribute of the module raised ``error``."""
        if error is not None and raised_by_handler(error):
            raise error
        self._before(module)

    def detach(self) -> None:
        """Remove the hook of this probe, or of another one with the same callback."""
        remove_hooks(self._module, lambda owner: isinstance(owner, BoundaryProbe) and owner._before == self._before)

    def remove(self) -> None:
        """Remove the hook for good."""
        self.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> Orphan:
        return Orphan()

    __reduce__ = ModuleProbe.__reduce__


skip_frames(BoundaryProbe.enter, callees=True)  # dynamo would compile it beside the graph of a compiled model
