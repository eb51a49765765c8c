"""Mark the calls of a module: forward and recompute, and its backward by the autograd nodes of their tensors."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from ...base.allowance import SAMPLED_CALLS, Allowance
from ...base.frame import Phase
from ...devices import Memory
from ..marks.codes import MEMORY
from ..recorder import Recorder
from .call_sites import CallEntry
from .entry_probe import EntryProbe
from .module_hooks import Hooks

if TYPE_CHECKING:
    from ...targets import Target


_turns: Final = cycle(range(SAMPLED_CALLS))
"""Gives 0 to the reading of the memory that is timed, of any module."""


class ModuleProbe(EntryProbe):
    """Mark the calls of one module, by the functions that ``make_hooks`` makes.

    They are called outermost, so that the time of the user's hooks belongs to the module. ``allowance`` pays for
    readings of the memory, which cost more than the mark itself.
    """

    outermost = True

    def __init__(
        self,
        recorder: Recorder,
        hooks: Hooks,
        target: Target,
        memory: Memory | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        phases, shown = target.phases, target.shown
        code = recorder.label(target.name, target.fqn, Phase.FORWARD, phases, shown=shown)
        super().__init__(recorder, target.module, code)
        self._memory = memory if target.memory else None
        self._allowance = allowance
        self._tracks_backward = Phase.BACKWARD in target.phases
        self._placement: Any = ()
        self.place(hooks)

    def place(
        self, hooks: Hooks, device: int | None = None, home: int | None = None, *, by_input: bool = False
    ) -> None:
        """Make the hooks for a module on ``device`` of a model whose home device is ``home``.

        ``by_input``: each call runs on the device of its input.
        """
        if (device, home, by_input) == self._placement:
            return
        self._placement = device, home, by_input
        attached = self._attached
        self.detach()
        make = hooks.tracking if self._tracks_backward else hooks.plain
        made = hooks.by_input(make, device) if by_input else make(None if device == home else device)
        self._entries = [made.entry(self)]
        if self._memory is not None:  # the memory is read behind each of the two marks
            self._entries = [CallEntry(self, None, _remember_after), *self._entries, CallEntry(self, _remember, None)]
        if self._memory is not None and device is not None:
            self._memory = self._memory.on(device)
        if attached:
            self.attach()

    @property
    def idles(self) -> bool:
        """Whether the probe may stay attached while calls are not marked: C passes over it, for next to nothing."""
        return len(self._entries) == 1

    def remember(self, module: nn.Module) -> None:
        """Record the memory at the mark just made."""
        if torch.compiler.is_dynamo_compiling():
            return
        try:
            if next(_turns) or self._allowance is None:
                self._read_memory()
            else:
                with self._allowance.sampled():
                    self._read_memory()
        except Exception as error:
            self.fail(module, error)

    def _read_memory(self) -> None:
        for value in self._memory.at_mark():  # type: ignore[union-attr]
            self.recorder.mark_value(MEMORY, value)


def _remember(self: ModuleProbe, module: nn.Module, args: Any, kwargs: Any) -> None:
    self.remember(module)


def _remember_after(self: ModuleProbe, module: nn.Module, args: Any, kwargs: Any, output: Any, _call: Any) -> None:
    self.remember(module)
