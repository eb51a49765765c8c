"""Notice the debugging switches that are on in a step: anomaly detection, a profiler, a tracing debugger.

They are read when backward begins, because a ``with`` block may switch them on for a part of the step, and at its end:
in each of the first steps, and in one of seven after them, which shares no divisor with the rhythms of most programs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from ..base.process.replace import CallProbe, Listener
from ..capture.hooks.backward import BACKWARD
from ._base import ProbeFactory

FIRST_LOOKS: Final = 32
LOOK_EVERY: Final = 7
_trace, _profile = sys.gettrace, sys.getprofile
_profiler_enabled: Callable[[], bool] = getattr(torch._C._autograd, "_profiler_enabled", lambda: False)


class DebugProbe(CallProbe, Listener):
    """Count the recorded steps in which each switch was on, of those looked at; it listens to ``backward`` as well."""

    def __init__(self) -> None:
        self.steps = 0
        """The steps looked at, but those of the warm-up."""
        self.looks = True
        """Whether the open step is looked at; ``look_at_next`` changes it."""
        self.seen: set[str] = set()
        """The switches that were on when a backward pass of the open step began."""
        super().__init__([(BACKWARD, self)])
        self.counts: Counter[str] = Counter()

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        self._look()
        return False

    def attach(self) -> None:
        super().attach()
        self.look_at_next(self.looks)

    def look_at_next(self, looks: bool) -> None:
        """Look at the steps from the next one on, or at none of them: a listener costs time in each backward pass."""
        self.looks = looks
        BACKWARD.listen(self) if looks and self._holds else BACKWARD.ignore(self)

    def _look(self) -> None:
        if torch.is_anomaly_enabled() or _profiler_enabled() or (_trace() or _profile()) is not None:
            self.seen.update(_switched_on())

    def detach(self) -> None:
        """Put ``torch.autograd.backward`` back: a wrapper would cost time in each unsampled step."""
        self.remove()

    def close_step(self, counts: bool) -> None:
        """Count the switches that are on, or were when backward began; those of a warm-up step are not counted."""
        self._look()
        if counts:
            self.steps += 1
            self.counts.update(self.seen)
        self.seen.clear()


def _switched_on() -> Iterator[str]:
    if torch.is_anomaly_enabled():
        yield "torch.autograd anomaly detection"
    if _profiler_enabled():
        yield "a torch profiler"
    if sys.gettrace() is not None:
        yield "sys.settrace (a debugger, or coverage)"
    if sys.getprofile() is not None:
        yield "sys.setprofile (cProfile)"


PROBE = ProbeFactory(lambda _context: DebugProbe())
