"""Read the records of one rank in one pass: steps, phases, rows, memory and the slowest steps, in bounded memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..._stats.rows import RowKey, step_rows
from ..._storage.records import Frames, record_files
from ...frame import Layout, Nanoseconds, StepFrame
from ...summary import Row

Times = npt.NDArray[np.float32]
"""Nanoseconds; NaN where a row did not occur."""

BINS: Final = 512
"""The most bins of steps."""
MAX_ROWS: Final = 400
"""Rows with a history, the longest ones: a page has at most 5 MB."""
SLOW_STEPS: Final = 32
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


@dataclass(frozen=True, eq=False, slots=True)
class SlowStep:
    """One of the slowest steps, with the time of each row."""

    frame: StepFrame
    times: Times


class RunHistory:
    """The records of one rank: times of the steps and of the longest rows, phases and memory.

    The first column of all times is the length of the steps; ``parents`` has the index of the row around each row, -1
    for none.
    """

    def __init__(self, most_steps: int, rows: Sequence[Row]) -> None:
        self.stride = max(ceil(most_steps / BINS), 1)
        self.steps = self.bad_lines = 0
        self.bins: list[StepBin] = []
        self.parents = [-1] * min(len(rows), MAX_ROWS)
        self._index = {RowKey(row.name, row.phase, row.lane): at for at, row in enumerate(rows[:MAX_ROWS])}
        self._of_layout: dict[Layout, Nanoseconds] = {}
        self._slow: list[tuple[int, int, SlowStep]] = []

    @property
    def slow(self) -> list[SlowStep]:
        """The slowest steps, the longest first."""
        return [slow for _, _, slow in sorted(self._slow, key=lambda one: (-one[0], one[1]))]

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
        if len(self._slow) < SLOW_STEPS or frame.step_ns > self._slow[0][0]:
            # The count differs also for a step that is recorded twice.
            entry = frame.step_ns, self.steps, SlowStep(frame, times[1:])
            (heapq.heappush if len(self._slow) < SLOW_STEPS else heapq.heapreplace)(self._slow, entry)

    def _times(self, frame: StepFrame) -> Times:
        """Return the length of a step and the times of its rows."""
        columns = self._of_layout.get(frame.layout)
        if columns is None:
            if len(self._of_layout) >= 128:
                self._of_layout.clear()
            columns = self._of_layout[frame.layout] = self._columns(frame.layout)
        times = np.full(1 + len(self.parents), np.nan, dtype=np.float32)
        times[columns] = step_rows(frame.layout).totals(frame.total_ns)
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


def read_history(path: Path, rows: Sequence[Row]) -> RunHistory:
    """Read a ``steps.jsonl``; ``rows`` are those of the summary, the longest first."""
    frames = Frames(path)
    history = RunHistory(_count_lines(path), rows)
    for frame in frames:
        history.add(frame)
    history.bad_lines = frames.bad_lines
    return history


def _count_lines(path: Path) -> int:
    """Count the lines of records, in blocks: they may have gigabytes."""
    lines = 0
    for part in record_files(path):
        with part.open("rb") as file:
            lines += sum(block.count(b"\n") for block in iter(partial(file.read, 1 << 20), b""))
    return lines
