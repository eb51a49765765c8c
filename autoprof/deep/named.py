"""autoprof's names in the trace: a range for each call of a target, forward, recompute and backward, and for steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import torch

from .._capture.probes import RangeProbe, Ranges
from .._process.signals import raised_by_handler
from .profile import STEP_PREFIX
from .trace import spell

if TYPE_CHECKING:
    from .._targets import Target

MOST: Final = 500_000
"""Ranges opened in one capture; beyond them there are none, and a note says so."""


def open_range(name: str, spelt: dict[str, str] | None = None) -> Callable[[], None]:
    """Open a range that traces call a user's annotation, on the host and on the device; some µs.

    ``spelt`` is told of a name that the trace cannot hold as it is.
    """
    shown = spell(name)
    if spelt is not None and shown is not name:
        spelt[shown] = name
    made: Any = torch.autograd.profiler.record_function(shown)
    made.__enter__()
    return lambda: made.__exit__(None, None, None)


class NamedRanges:
    """Put ranges on the targets, and take them off."""

    def __init__(self, targets: Iterable[Target], say: Callable[[str], None], spelt: dict[str, str]) -> None:
        self._spelt = spelt
        self.ranges = Ranges([self._open])
        self._targets = targets
        self._say = say
        self._probes: list[RangeProbe] = []
        self._count = 0
        self._step: Callable[[], None] | None = None

    def attach(self) -> None:
        """Put them on."""
        owner: Any = self
        self._probes = [RangeProbe(owner, target) for target in self._targets]
        for probe in self._probes:
            probe.attach()

    def step(self, number: int) -> None:
        """End the range of the step before, and open that of this one."""
        self.end_step()
        self._step = open_range(f"{STEP_PREFIX}{number}")

    def end_step(self) -> None:
        """End the range of the open step."""
        close, self._step = self._step, None
        if close is not None:
            close()

    def detach(self) -> None:
        """Take everything off, and open nothing any more; go on after a failure, and raise the first."""
        failed: list[Exception] = []
        for undo in [*(probe.detach for probe in self._probes), self.ranges.stop, self.end_step]:
            try:
                undo()
            except Exception as error:
                failed.append(error)
        self._probes = []
        if failed:
            raise failed[0]

    def fail(self, where: str) -> None:
        """Take note of a failure inside a hook, from inside its ``except``; the probe takes itself off."""
        error = sys.exc_info()[1]
        if error is not None and raised_by_handler(error):
            raise error
        self._say(f"deep capture: {where} are off on a module after {type(error).__name__}: {error}")

    def _open(self, name: str) -> Callable[[], None]:
        self._count += 1
        if self._count > MOST:
            if self._count == MOST + 1:
                self._say(f"deep capture: after {MOST:,} calls of layers no further ones are named in the trace")
            return _nothing
        return open_range(name, self._spelt)


def _nothing() -> None:
    """Close nothing."""
