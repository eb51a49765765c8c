"""Deep captures of the next steps, when a request comes: one at a time, each of a few steps and of limited size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from .._process.failures import contain, describe
from .._units import count
from .capture import Capture
from .options import MIB, clean_stem, make_options
from .report import write_report
from .window import SamplingControl

if TYPE_CHECKING:
    from .._targets import Target

MB: Final = 1_000_000
CAPTURE_STEPS: Final = 2
MAX_MB: Final = 50
"""The largest size of a trace; of a larger one the shortest events are dropped."""
CAPTURES_SHARE: Final = 0.1
"""The part of ``output_max_mb`` for the traces of all ranks."""
STEM: Final = "flight"
"""The beginning of the names of the files."""


class RequestedCaptures:
    """Capture the next steps when ``take`` returns a reason, a few of them.

    ``output_max_mb`` is the limit of a run's files, of which the traces of all ranks have a part; None for no limit.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        *,
        output_max_mb: float | None = None,
        targets: Iterable[Target],
        sampling: SamplingControl,
        take: Callable[[], str | None],
        warn: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._targets = tuple(targets)
        self._sampling = sampling
        self._take = take
        self._warn = warn
        self._open: Capture | None = None
        self._last = 0
        self._done: list[Capture] = []
        self._process = os.getpid()
        self._max_bytes = MAX_MB * MB
        self._max_run_bytes = None if output_max_mb is None else CAPTURES_SHARE * output_max_mb * MB

    def step_begins(self, step: int) -> bool:
        """Begin or end a capture before this step; return whether the step is excluded from the statistics."""
        began_ns = perf_counter_ns()
        ended = self._open is not None and step > self._last
        if ended:
            self._end()
        if self._open is None and (reason := self._take()) is not None:
            self._begin(step, reason)
        if self._open is not None:
            self._open.step(step)
        excluded = ended or self._open is not None
        if excluded:
            self._sampling.exclude(perf_counter_ns() - began_ns)
        return excluded

    def close(self) -> None:
        """End an open capture, and write the tables and figures of all captures."""
        if os.getpid() != self._process:
            return
        if self._open is not None:
            self._end()
        while self._done:
            with contain(self._warn_of):
                self._report(self._done.pop(0))

    def _room_bytes(self) -> int:
        """Return the most bytes of the next trace."""
        if self._max_run_bytes is None:
            return self._max_bytes
        used = sum(path.stat().st_size for path in self._folder.parent.glob(f"rank*/{STEM}_*_trace.json"))
        return min(self._max_bytes, int(self._max_run_bytes) - used)

    def _begin(self, step: int, reason: str) -> None:
        max_bytes = 0
        with contain(self._warn_of):
            max_bytes = self._room_bytes()
        if max_bytes < MIB:
            self._warn(f"{reason}: no deep capture, because its trace would exceed output_max_mb")
            return
        last = step + CAPTURE_STEPS - 1
        stem = f"step{step}" if last == step else f"steps{step}-{last}"
        made = Capture(
            make_options(max_steps=CAPTURE_STEPS, max_mib=max_bytes // MIB),
            self._folder,
            clean_stem(STEM, stem),
            self._rank,
            targets=self._targets,
            warn=self._warn,
        )
        if made.begin():
            self._open, self._last = made, last
            self._sampling.reserve(step, CAPTURE_STEPS + 1)
            self._warn(f"{reason}: a deep capture of {count(CAPTURE_STEPS, 'step')} from step {step} on")

    def _end(self) -> None:
        made, self._open = self._open, None
        if made is None:
            return
        made.end()
        trace = made.trace
        if trace is None:
            return
        if trace.stat().st_size > made.options.max_mib * MIB:  # cut now, and not at an end that may never come
            with contain(self._warn_of):
                self._report(made)
        else:
            self._done.append(made)
        self._warn(f"{trace.name} has the deep capture; its steps are excluded from the statistics")

    def _report(self, capture: Capture) -> None:
        profile = capture.read()
        if profile is not None:
            write_report(profile, capture.options, capture.path)

    def _warn_of(self, error: Exception) -> None:
        self._warn(f"flight recorder: {describe(error)}")
