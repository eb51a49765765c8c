"""Read the records of one rank in one pass: steps, phases, rows, memory and the slowest steps, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...base.frame import Layout, Nanoseconds, StepFrame
from ...base.stats.rows import RowKey, step_rows
from ...base.storage.records import Frames
from ...base.summary import Summary

Times = npt.NDArray[np.float32]
"""Nanoseconds; NaN where a row did not occur."""

BINS: Final = 512
"""The most bins of steps."""
MAX_ROWS: Final = 400
"""Rows with a history, the longest ones: a page has at most 5 MB."""
SLOW_STEPS: Final = 16
"""The slowest steps, which are kept with the times of all their rows."""


@dataclass(slots=True)
class StepBin:
    """Some steps in a row: sums and maxima of their times, sums of their phases, maxima of their memory."""

    first: int
    last: int
    sums: npt.NDArray[np.float64]
    counts: Nanoseconds
    most: Times
    steps: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    memory: dict[str, int] = field(default_factory=dict)

    def add(self, frame: StepFrame, times: Times) -> None:
        """Add one step."""
        self.last = frame.step
        self.steps += 1
        self.sums += np.nan_to_num(times)
        self.counts += ~np.isnan(times)
        self.most = np.fmax(self.most, times)
        self.phases.update({str(phase): ns for phase, ns in frame.phase_ns().items()})
        for key, value in frame.memory.items():
            self.memory[key] = max(value, self.memory.get(key, value))

    def mean(self) -> Times:
        """Return the mean of each column over the steps with it."""
        means: Times = np.where(self.counts, self.sums / np.maximum(self.counts, 1), np.nan).astype(np.float32)
        return means


class SlowStep(NamedTuple):
    """One of the slowest steps, with the time of each row."""

    frame: StepFrame
    times: Times


class RunHistory:
    """The records of one rank: times of the steps and of the longest rows, phases and memory.

    The first column of all times is the length of the steps; ``parents`` has the index of the row around each row, -1
    for none.
    """

    def __init__(self, summary: Summary) -> None:
        self.stride = max(ceil(summary.steps / BINS), 1)
        self.steps = self.bad_lines = 0
        self.bins: list[StepBin] = []
        rows = summary.rows[:MAX_ROWS]
        self.parents = [-1] * len(rows)
        self._index = {RowKey(row.name, row.phase, row.lane): at for at, row in enumerate(rows)}
        self._columns_of = lru_cache(maxsize=128)(self._columns)
        self._slow: list[SlowStep] = []

    @property
    def slow(self) -> list[SlowStep]:
        """The slowest steps, the longest first."""
        return sorted(self._slow, key=lambda one: -one.frame.step_ns)[:SLOW_STEPS]

    def add(self, frame: StepFrame) -> None:
        """Add one step; a warm-up step is ignored."""
        if frame.warmup or (frame.device_ns is not None and frame.device_duration_ns is None):
            return
        self.steps += 1
        times = self._times(frame)
        if not self.bins or self.bins[-1].steps == self.stride:
            empty = np.zeros(len(times), dtype=np.int64)
            self.bins.append(StepBin(frame.step, frame.step, empty.astype(np.float64), empty, times))
        self.bins[-1].add(frame, times)
        self._slow.append(SlowStep(frame, times[1:]))
        if len(self._slow) == 2 * SLOW_STEPS:
            self._slow = self.slow

    def _times(self, frame: StepFrame) -> Times:
        """Return the length of a step and the times of its rows."""
        times = np.full(1 + len(self.parents), np.nan, dtype=np.float32)
        times[self._columns_of(frame.layout)] = step_rows(frame.layout).totals(frame.total_ns)
        times[0] = frame.step_ns
        return times

    def _columns(self, layout: Layout) -> Nanoseconds:
        """Return the column of each row of a layout; rows without a history have the first, which is overwritten."""
        rows = step_rows(layout)
        places = [self._index.get(key, -1) for key in rows.keys]
        for place, parent in zip(places, rows.parents, strict=True):
            if place >= 0 and parent >= 0:
                self.parents[place] = places[parent]
        return np.asarray(places, dtype=np.int64) + 1


def read_history(path: Path, summary: Summary) -> RunHistory:
    """Read the ``steps.jsonl`` of a run with this summary."""
    frames = Frames(path)
    history = RunHistory(summary)
    for frame in frames:
        history.add(frame)
    history.bad_lines = frames.bad_lines
    return history
