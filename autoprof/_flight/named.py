"""Ranges in the trace for steps and for the calls of targets: forward, recompute and backward."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import torch

from .._capture.hooks.ranges import RangeProbe, Ranges
from .._core.signals import raised_by_handler

if TYPE_CHECKING:
    from .._targets import Target

STEP_PREFIX: Final = "ProfilerStep#"
"""Prefix of a step in the trace, the same as torch.profiler's, so that other tools find the steps."""
_SAFE: Final = " !#$&'()*+,-./:;<=>?@[]^_`{|}~"


def encode_name(name: str) -> str:
    """Percent-encode a name that Kineto cannot write: it neither escapes quotes nor keeps characters outside ASCII."""
    return quote(name, safe=_SAFE)


def open_range(name: str, encoded_names: dict[str, str]) -> Callable[[], None]:
    """Open a user annotation in the trace, at a cost of some µs; return the function that closes it.

    ``encoded_names`` gets the name by its encoded form.
    """
    encoded = encode_name(name)
    encoded_names[encoded] = name
    made: Any = torch.autograd.profiler.record_function(encoded)
    made.__enter__()
    return lambda: made.__exit__(None, None, None)


class NamedRanges:
    """Attach ranges to the targets, and detach them."""

    def __init__(self, targets: Iterable[Target], note: Callable[[str], None], encoded_names: dict[str, str]) -> None:
        self.ranges = Ranges(lambda name: open_range(name, encoded_names))
        self._targets = targets
        self._note = note
        self._probes: list[RangeProbe] = []
        self._step: Callable[[], None] | None = None

    def attach(self) -> None:
        """Attach the ranges."""
        owner: Any = self
        self._probes = [RangeProbe(owner, target) for target in self._targets]
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
        failed: list[Exception] = []
        for undo in [*(probe.remove for probe in self._probes), self.ranges.stop, self.end_step]:
            try:
                undo()
            except Exception as error:
                failed.append(error)
        self._probes = []
        if failed:
            raise failed[0]

    def handle_failure(self, where: str) -> None:
        """Note the current exception of a hook; the probe detaches itself."""
        error = sys.exc_info()[1]
        if error is not None and raised_by_handler(error):
            raise error
        self._note(f"deep capture: {where} are off on a module after {type(error).__name__}: {error}")
