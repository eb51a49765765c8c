"""Deep captures during a run: of chosen steps, and when one is requested."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.units import count
from .capture import MAX_STEPS, Capture, make_options

if TYPE_CHECKING:
    from ...config import Deep
    from ...targets import Target


class ScheduledCaptures:
    """Capture the steps that ``wanted`` names, and the next ones when ``take_request`` returns True.

    ``reserve`` has a number of steps from one on recorded whatever their cost.
    """

    def __init__(
        self,
        wanted: Deep | None,
        folder: Path,
        rank: int,
        *,
        targets: Iterable[Target],
        reserve: Callable[[int, int], None],
        warn: Callable[[str], None],
        take_request: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._targets = tuple(targets)
        self._reserve = reserve
        self._warn = warn
        self._take_request = take_request
        self._window = (0, -1) if wanted is None else (wanted.steps[0], wanted.steps[-1])
        """The first and the last of the chosen steps; the first is after the last where there are none."""
        self._open: Capture | None = None
        self._last = 0
        self._process = os.getpid()

    def begin(self) -> None:
        """Reserve the steps. Called once, at set-up."""
        first, last = self._window
        if last >= first:
            self._reserve(first, last - first + 2)

    def step_begins(self, step: int) -> bool:
        """Begin or end a capture before this step; return whether the step is excluded from the statistics."""
        excluded = False
        if self._open is not None and step > self._last:
            self._end()
            excluded = True
        if self._open is None:
            self._begin_due(step)
        if self._open is not None:
            excluded = True
            self._open.step(step)
        return excluded

    def close(self) -> None:
        """End an open capture."""
        if os.getpid() == self._process:
            self._window = 0, -1
            self._end()

    def _begin_due(self, step: int) -> None:
        """Begin the capture of a chosen step, or that of a request."""
        # Steps that are captured on request.
        steps = 2
        first, last = self._window
        if first <= step <= last:
            self._window = 0, -1
            self._begin(step, last, "")
        elif self._take_request() and self._begin(step, step + steps - 1, "flight_"):
            self._reserve(step, steps + 1)
            self._warn(f"the file capture.request: a deep capture of {count(steps, 'step')} from step {step} on")

    def _begin(self, step: int, last: int, prefix: str) -> bool:
        stem = f"{prefix}step{step}" if step == last else f"{prefix}steps{step}-{last}"
        options = make_options(max_steps=MAX_STEPS)
        made = Capture(options, self._folder, stem, self._rank, targets=self._targets, warn=self._warn)
        if made.begin():
            self._open, self._last = made, last
        return self._open is not None

    def _end(self) -> None:
        made, self._open = self._open, None
        if made is None:
            return
        made.end()
        if made.files:
            self._warn(
                f"{made.files[0].name} has {count(len(made.steps), 'step')} from step {made.steps[0]} on; their times "
                "include the cost of recording, so they are excluded from the statistics"
            )
