"""Read the records of one rank in one pass: steps, phases, rows, memory and the slowest steps, in bounded memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, isfinite
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..._stats.rows import RowKey, step_rows
from ..._storage.records import Frames, record_files
from ...frame import Layout, Nanoseconds, Phase, StepFrame
from ...summary import Row

Times = npt.NDArray[np.float32]
"""Nanoseconds; NaN where a row did not occur."""

BINS: Final = 512
"""The most bins of steps."""
MAX_ROWS: Final = 400
"""Rows with a history, the longest ones: a page has at most 5 MB."""
SLOW_STEPS: Final = 32
"""The slowest steps, which are kept with the times of all their rows."""


class QuantileBins:
    """Collect columns of times; a bin for each ``stride`` steps has their median, 95th percentile and maximum."""

    def __init__(self, stride: int) -> None:
        self.stride = max(stride, 1)
        self.first: list[int] = []
        self.last: list[int] = []
        self._samples: list[Times] = []
        self._bins: list[Times] = []
        self._count = 0

    def add(self, step: int, times: Times) -> None:
        """Add the times of one step."""
        if not self._count:
            self.first.append(step)
            self.last.append(step)
        self.last[-1] = step
        if self._count % ceil(self.stride / 512) == 0:  # at most 512 evenly spaced steps of a bin are in memory
            self._samples.append(times)
        self._count += 1
        if self._count == self.stride:
            self._close_bin()

    def _close_bin(self) -> None:
        ordered = np.sort(np.stack(self._samples), axis=0)  # NaN is last
        present = (~np.isnan(ordered)).sum(axis=0)
        ranks = [np.maximum(np.ceil(q * present).astype(np.int64), 1) - 1 for q in (0.5, 0.95, 1.0)]
        self._bins.append(np.take_along_axis(ordered, np.stack(ranks), axis=0))
        self._samples, self._count = [], 0

    def result(self) -> Times:
        """Return the medians, the 95th percentiles and the maxima: 3 × columns × bins."""
        if self._count:
            self._close_bin()
        return np.stack(self._bins, axis=2)


class ValueBins:
    """Collect values by name; a bin for each ``stride`` steps has one number of each, such as the largest."""

    def __init__(self, stride: int, reduce: Callable[[Sequence[float]], float]) -> None:
        self.steps: list[int] = []
        self._stride = max(stride, 1)
        self._reduce = reduce
        self._open: dict[str, list[float]] = {}
        self._bins: list[dict[str, float]] = []
        self._count = 0

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add the values of one step."""
        if not self._count:
            self.steps.append(step)
        for key, value in values.items():
            if isfinite(value):
                self._open.setdefault(key, []).append(value)
        self._count += 1
        if self._count == self._stride:
            self._close_bin()

    def _close_bin(self) -> None:
        self._bins.append({key: self._reduce(values) for key, values in self._open.items()})
        self._open, self._count = {}, 0

    def result(self) -> dict[str, list[float | None]]:
        """Return a column for each of the first 16 names; None where a bin has no value of it."""
        if self._count:
            self._close_bin()
        names = list(dict.fromkeys(name for one in self._bins for name in one))
        return {name: [one.get(name) for one in self._bins] for name in names[:16]}


@dataclass(frozen=True, eq=False, slots=True)
class SlowStep:
    """One of the slowest steps, with the time of each row."""

    step: int
    start_unix_ns: int
    step_ns: int
    phases: Mapping[str, int]
    times: Times


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class RunHistory:
    """The records of one rank: times of the steps and of the longest rows, phases and memory.

    The first column of ``times`` is the length of the steps; ``parents`` has the index of the row around each row, -1
    for none.
    """

    def __init__(self, most_steps: int, rows: Sequence[Row]) -> None:
        stride = ceil(most_steps / BINS)
        self.steps = self.bad_lines = 0
        self.times = QuantileBins(stride)
        self.phases = ValueBins(stride, _mean)
        self.memory = ValueBins(stride, max)
        self.parents = [-1] * min(len(rows), MAX_ROWS)
        self._index = {RowKey(row.name, row.phase, row.lane): at for at, row in enumerate(rows[:MAX_ROWS])}
        self._of_layout: dict[Layout, Nanoseconds] = {}
        self._slow: list[tuple[int, int, SlowStep]] = []

    @property
    def slow(self) -> list[SlowStep]:
        """The slowest steps, the longest first."""
        return [slow for _, _, slow in sorted(self._slow, key=lambda one: (-one[0], one[1]))]

    def add(self, frame: StepFrame) -> None:
        """Add one step; of a warm-up step only its memory."""
        self.memory.add(frame.step, frame.memory)
        if frame.warmup or (frame.device_ns is not None and frame.device_duration_ns is None):
            return
        self.steps += 1
        times, phases = self._times(frame), {str(phase): ns for phase, ns in frame.phase_ns().items()}
        self.times.add(frame.step, times)
        self.phases.add(frame.step, {str(phase): phases.get(str(phase), 0) for phase in Phase})
        if len(self._slow) < SLOW_STEPS or frame.step_ns > self._slow[0][0]:
            slow = SlowStep(frame.step, frame.start_unix_ns, frame.step_ns, phases, times[1:])
            entry = (frame.step_ns, self.steps, slow)  # the count differs also for a step that is recorded twice
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
