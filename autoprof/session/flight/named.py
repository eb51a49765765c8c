"""Ranges in the trace for steps and for the calls of targets: forward and recompute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import torch
from torch import nn

from ...base.frame import Phase
from ...base.signals import raised_by_handler
from ...capture.handle import Handle
from ...capture.hooks.call_sites import CallEntry
from ...capture.hooks.entry_probe import EntryProbe

if TYPE_CHECKING:
    from ...targets import Target

STEP_PREFIX: Final = "ProfilerStep#"
"""Prefix of a step in the trace, the same as torch.profiler's, so that other tools find the steps."""
Close = Callable[[], None]
_SAFE: Final = " !#$&'()*+,-./:;<=>?@[]^_`{|}~"


def encode_name(name: str) -> str:
    """Percent-encode a name that Kineto cannot write: it neither escapes quotes nor keeps characters outside ASCII."""
    return quote(name, safe=_SAFE)


def open_range(name: str, encoded_names: dict[str, str]) -> Close:
    """Open a user annotation in the trace, at a cost of some µs; return the function that closes it.

    ``encoded_names`` gets the name by its encoded form.
    """
    encoded = encode_name(name)
    encoded_names[encoded] = name
    made: Any = torch.autograd.profiler.record_function(encoded)
    made.__enter__()
    return lambda: made.__exit__(None, None, None)


class _RangeProbe(EntryProbe):
    """Open a range at each call of one target, and close it. ``owner`` handles failures."""

    where = "range hooks"
    outermost = True

    def __init__(self, owner: Any, target: Target, encoded_names: dict[str, str]) -> None:
        super().__init__(owner, target.module)
        self._name, self._phases, self._encoded_names = target.name, target.phases, encoded_names
        self._entries = [CallEntry(self, _RangeProbe.enter, _RangeProbe.leave)]

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> Close | None:
        """Open the range of a call."""
        if torch.compiler.is_dynamo_compiling():  # a compiled graph holds no range
            return None
        try:
            phase = Phase.FORWARD if torch._C._current_graph_task_id() == -1 else Phase.RECOMPUTE
            return open_range(phase.qualify(self._name), self._encoded_names) if phase in self._phases else None
        except Exception:
            self.fail()
            return None

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any, close: Close | None) -> None:
        """Close it, unless it was not opened."""
        if close is None:
            return
        try:
            close()
        except Exception:
            self.fail()


class NamedRanges:
    """Attach ranges to the targets, and detach them."""

    def __init__(self, targets: Iterable[Target], note: Callable[[str], None], encoded_names: dict[str, str]) -> None:
        self._note = note
        self._probes = [_RangeProbe(self, target, encoded_names) for target in targets]
        self._step: Close | None = None
        self._handle = Handle()
        for undo in (self.end_step, *(probe.remove for probe in self._probes)):
            self._handle.add(undo)

    def attach(self) -> None:
        """Attach the ranges."""
        for probe in self._probes:
            probe.attach()

    def step(self, number: int) -> None:
        """Close the range of the previous step and open that of this one."""
        self.end_step()
        self._step = open_range(f"{STEP_PREFIX}{number}", {})

    def end_step(self) -> None:
        """Close the range of the open step."""
        close, self._step = self._step, None
        if close is not None:
            close()

    def detach(self) -> None:
        """Detach all ranges; continue after a failure and raise the first one."""
        self._handle.remove()

    def handle_failure(self, where: str) -> None:
        """Note the current exception of a hook; the probe detaches itself."""
        error = sys.exc_info()[1]
        if error is not None and raised_by_handler(error):
            raise error
        self._note(f"deep capture: {where} are off on a module after {type(error).__name__}: {error}")
