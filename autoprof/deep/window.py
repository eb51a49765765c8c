"""Deep captures from the configuration: of chosen steps, or once when the report has a verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Protocol

from .._process.failures import contain, describe
from .._reports.card import verdict, verdict_line
from ..summary import Summary
from .capture import Capture
from .options import clean_stem, make_options
from .report import write_report

if TYPE_CHECKING:
    from .._targets import Target
    from ..config import Deep

FIRST_CHECK: Final = 16
"""Recorded steps before the first check for a verdict; each further check waits for twice as many."""
MAX_CHECK_INTERVAL: Final = 4096
"""The largest number of recorded steps between two checks."""


VERDICT_STEPS: Final = 3
"""Steps of the capture after the first verdict."""


class SamplingControl(Protocol):
    """The part of the session's sampling that a window uses."""

    def reserve(self, first: int, count: int) -> None:
        """Record these steps whatever their cost."""

    def exclude(self, ns: int) -> None:
        """Exclude work that the user has asked for from the step and from the cost of recording."""


class DeepWindow:
    """Capture the configured steps; the tables and figures are made when the run ends."""

    def __init__(
        self,
        wanted: Deep,
        folder: Path,
        rank: int,
        *,
        targets: Iterable[Target],
        sampling: SamplingControl,
        summary: Callable[[], Summary],
        warn: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._targets = tuple(targets)
        self._sampling = sampling
        self._summary = summary
        self._warn = warn
        self._windows = [wanted.window_of_steps] if wanted.window_of_steps else []
        self._awaits_verdict = wanted.on == "verdict"
        self._recorded = 0
        self._next_check = FIRST_CHECK
        self._open: Capture | None = None
        self._last = 0
        self._done: list[Capture] = []
        self._process = os.getpid()
        self._options = make_options(
            max_steps=max((last - first + 1 for first, last in self._windows), default=1) + VERDICT_STEPS,
        )

    def begin(self) -> None:
        """Reserve the steps. Called once, at set-up."""
        for first, last in self._windows:
            self._sampling.reserve(first, last - first + 2)

    def step_begins(self, step: int) -> bool:
        """Begin or end a capture before this step; return whether the step is excluded from the statistics."""
        self._recorded += 1
        began, excluded = perf_counter_ns(), False
        if self._open is not None and step > self._last:
            self._end()
            excluded = True
        if self._open is None and self._awaits_verdict and self._recorded >= self._next_check:
            self._check_verdict(step)
            began = perf_counter_ns() if not excluded else began
        for first, last in self._windows:
            if self._open is None and first <= step <= last:
                self._begin(step, last)
        if self._open is not None:
            excluded = True
            self._open.step(step)
        if excluded:
            self._sampling.exclude(perf_counter_ns() - began)
        return excluded

    def close(self) -> None:
        """End an open capture, and write the tables and figures of all captures."""
        if os.getpid() != self._process:
            return
        self._windows, self._awaits_verdict = [], False
        if self._open is not None:
            self._end()
        while self._done:
            self._attempt(self._report, self._done.pop(0))

    def _check_verdict(self, step: int) -> None:
        self._next_check = self._recorded + min(self._recorded, MAX_CHECK_INTERVAL)
        summary = self._attempt(self._summary)
        found = None if not isinstance(summary, Summary) else verdict(summary)
        if found is None or not isinstance(summary, Summary):
            return
        self._awaits_verdict = False
        first, last = step + 1, step + VERDICT_STEPS
        self._windows.append((first, last))
        self._sampling.reserve(first, last - first + 2)
        self._warn(f"the verdict is {verdict_line(summary, gain=False)}: a deep capture of steps {first} to {last}")

    def _begin(self, step: int, last: int) -> None:
        stem = clean_stem("", f"step{step}" if step == last else f"steps{step}-{last}")
        self._windows = [window for window in self._windows if not window[0] <= step <= window[1]]
        made = Capture(self._options, self._folder, stem, self._rank, targets=self._targets, warn=self._warn)
        if made.begin():
            self._open, self._last = made, last

    def _end(self) -> None:
        made, self._open = self._open, None
        if made is None:
            return
        made.end()
        if made.trace is not None:
            self._done.append(made)
            self._warn(
                f"{made.trace.name} has {len(made.steps)} steps from step {made.steps[0]} on; their times include "
                "the cost of recording, so they are excluded from the statistics"
            )

    def _report(self, capture: Capture) -> None:
        profile = capture.read()
        if profile is not None:
            write_report(profile, self._options, capture.path)

    def _attempt(self, action: Callable[..., object], *args: object) -> object:
        with contain(self._warn_of):
            return action(*args)
        return None

    def _warn_of(self, error: Exception) -> None:
        self._warn(f"deep: {describe(error)}")
