"""Read the records of one rank in one pass: steps, phases, rows, memory and the slowest steps, in bounded memory."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Final

import numpy as np

from ..._stats.rows import RowKey, step_rows
from ..._storage.records import Frames, record_files
from ...frame import UNTIMED_LANE, Layout, Nanoseconds, StepFrame
from .bins import BinnedSeries, MeanBins, QuantileBins
from .call_tree import CallTree, CallTrees
from .codes import FIRST, PER_NAT, Codes, encode

STEP_BINS: Final = (4096, 512)
"""Bins of the steps, finest first: a page shows the finest level that has no more bins than pixels."""
ROW_BINS: Final = (512, 256, 128, 64, 32)
"""Bins of the rows' histories: the most that fit into the page."""
MAX_ROWS: Final = 4096
SLOW_STEPS: Final = 32
"""The slowest steps, which are kept with the times of all their rows."""
HISTOGRAM_CODES: Final = 100
"""Codes in a bin of a row's distribution: it is 5 % wide."""
_HISTOGRAM_BINS: Final = 65536 // HISTOGRAM_CODES + 1
MAX_READINGS: Final = 16
"""Kinds of memory readings and of logged scalars that are kept."""
READING_BINS: Final = 512


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """A row of the records; ``parent`` is the index of the row around it, -1 for none."""

    key: RowKey
    fqn: str | None
    parent: int


@dataclass(frozen=True, eq=False, slots=True)
class SlowStep:
    """One of the slowest steps, with the code of each row's time."""

    step: int
    start_unix_ns: int
    step_ns: int
    phases: Mapping[str, int]
    scalars: Mapping[str, float]
    codes: Codes


@dataclass(frozen=True, eq=False, slots=True)
class BinnedReadings:
    """Readings in bins of steps: of memory the largest, of a logged scalar the mean; None is not measured."""

    steps: tuple[int, ...] = ()
    series: Mapping[str, tuple[float | None, ...]] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class StepLevel:
    """The steps at one resolution: quantiles of their length, and means of their phases."""

    times: BinnedSeries
    phases: Mapping[str, Codes]


@dataclass(frozen=True, eq=False, slots=True)
class RunHistory:
    """The records of one rank. ``histograms`` are rows × bins of ``HISTOGRAM_CODES`` codes."""

    steps: int
    warmup: int
    bad_lines: int
    rows: tuple[RecordedRow, ...]
    dropped_rows: int
    levels: tuple[StepLevel, ...]
    row_bins: BinnedSeries
    histograms: Nanoseconds
    tree: CallTree
    slow: tuple[SlowStep, ...]
    memory: BinnedReadings
    scalars: BinnedReadings


def read_history(path: Path, row_bins: int) -> RunHistory:
    """Read a ``steps.jsonl``; ``row_bins`` is the number of bins of each row's history."""
    frames = Frames(path)
    reader = _HistoryReader(count_lines(path), row_bins)
    for frame in frames:
        reader.add(frame)
    return reader.result(frames.bad_lines)


def count_lines(path: Path) -> int:
    """Count the lines of records, in blocks: they may have gigabytes."""
    lines = 0
    for part in record_files(path):
        with part.open("rb") as file:
            lines += sum(block.count(b"\n") for block in iter(partial(file.read, 1 << 20), b""))
    return lines


class _HistoryReader:
    def __init__(self, most_steps: int, row_bins: int) -> None:
        self._steps = self._warmup = 0
        strides = [-(-most_steps // bins) for bins in STEP_BINS]
        self._levels = [(QuantileBins(stride), MeanBins(stride)) for stride in strides]
        self._row_bins = QuantileBins(-(-most_steps // row_bins))
        self._memory = _ReadingBins(-(-most_steps // READING_BINS), largest=True)
        self._scalars = _ReadingBins(-(-most_steps // READING_BINS), largest=False)
        self._index: dict[RowKey, int] = {}
        self._rows: list[RecordedRow] = []
        self._dropped: set[RowKey] = set()
        self._ids: dict[Layout, Nanoseconds] = {}
        self._histograms: Nanoseconds = np.zeros((64, _HISTOGRAM_BINS), dtype=np.int64)
        self._trees = CallTrees()
        self._slow: list[tuple[int, int, SlowStep]] = []

    def add(self, frame: StepFrame) -> None:
        """Add one frame; of a warm-up step, the readings of memory only."""
        self._memory.add(frame.step, frame.memory)
        if frame.warmup:
            self._warmup += 1
            return
        if frame.device_ns is not None and frame.device_duration_ns is None:
            return
        self._steps += 1
        self._scalars.add(frame.step, frame.scalars)
        phases = {str(phase): ns for phase, ns in frame.phase_ns().items()}
        step_code = encode(np.array([frame.step_ns], dtype=np.int64))
        for times, means in self._levels:
            times.add(frame.step, step_code)
            means.add(phases)
        codes = self._codes(frame)
        self._row_bins.add(frame.step, codes)
        self._trees.add(frame)
        if len(self._slow) < SLOW_STEPS or frame.step_ns > self._slow[0][0]:
            slow = SlowStep(frame.step, frame.start_unix_ns, frame.step_ns, phases, dict(frame.scalars), codes)
            entry = (frame.step_ns, self._steps, slow)  # the count differs also for a step that is recorded twice
            (heapq.heappush if len(self._slow) < SLOW_STEPS else heapq.heapreplace)(self._slow, entry)

    def _codes(self, frame: StepFrame) -> Codes:
        ids = self._ids.get(frame.layout)
        if ids is None:
            ids = self._register(frame.layout)
        codes = np.zeros(len(self._rows), dtype=np.uint16)
        kept = ids >= 0
        found = encode(step_rows(frame.layout).totals(frame.total_ns))[kept]
        codes[ids[kept]] = found
        bins = ids[kept] * _HISTOGRAM_BINS + found // HISTOGRAM_CODES
        np.add.at(self._histograms.reshape(-1), bins, 1)
        return codes

    def _register(self, layout: Layout) -> Nanoseconds:
        """Return the index of each row of a layout, -1 for a row beyond the limit."""
        rows = step_rows(layout)
        ids = np.full(len(rows), -1, dtype=np.int64)
        for at, key in enumerate(rows.keys):
            if key.lane == UNTIMED_LANE:
                continue
            if key not in self._index and len(self._rows) >= MAX_ROWS:
                self._dropped.add(key)
                continue
            index = ids[at] = self._index.setdefault(key, len(self._rows))
            if index == len(self._rows):
                parent = rows.parents[at]
                above = self._index.get(rows.keys[parent], -1) if parent >= 0 else -1
                self._rows.append(RecordedRow(key, rows.fqns[at], above))
        if len(self._rows) > len(self._histograms):
            larger = np.zeros((2 * len(self._rows), _HISTOGRAM_BINS), dtype=np.int64)
            larger[: len(self._histograms)] = self._histograms
            self._histograms = larger
        if len(self._ids) >= 128:
            self._ids.clear()
        self._ids[layout] = ids
        return ids

    def result(self, bad_lines: int) -> RunHistory:
        """Return everything that was read."""
        rows = len(self._rows)
        return RunHistory(
            steps=self._steps,
            warmup=self._warmup,
            bad_lines=bad_lines,
            rows=tuple(self._rows),
            dropped_rows=len(self._dropped),
            levels=tuple(StepLevel(times.result(1), means.result()) for times, means in self._levels),
            row_bins=self._row_bins.result(rows),
            histograms=self._histograms[:rows],
            tree=self._trees.shown(),
            slow=tuple(slow for _, _, slow in sorted(self._slow, key=lambda one: (-one[0], one[1]))),
            memory=self._memory.result(),
            scalars=self._scalars.result(),
        )


class _ReadingBins:
    """Collect readings of a few kinds, a bin for each ``stride`` steps: the largest of each bin, or its mean."""

    def __init__(self, stride: int, *, largest: bool) -> None:
        self._stride = max(stride, 1)
        self._largest = largest
        self._count = 0
        self._steps: list[int] = []
        self._values: dict[str, list[tuple[float, int]]] = {}

    def add(self, step: int, readings: Mapping[str, float]) -> None:
        if not self._count:
            self._steps.append(step)
        self._count = (self._count + 1) % self._stride
        at = len(self._steps) - 1
        for key, value in readings.items():
            if not isfinite(value):
                continue
            column = self._values.get(key)
            if column is None:
                if len(self._values) >= MAX_READINGS:
                    continue
                column = self._values[key] = []
            column += [(0.0, 0)] * (at + 1 - len(column))
            known, count = column[at]
            column[at] = (max(known, value) if self._largest and count else known + value, count + 1)

    def result(self) -> BinnedReadings:
        series = {}
        for key, column in self._values.items():
            padded = column + [(0.0, 0)] * (len(self._steps) - len(column))
            share = [(value if self._largest else value / max(count, 1), count) for value, count in padded]
            series[key] = tuple(value if count else None for value, count in share)
        return BinnedReadings(tuple(self._steps), series)


def histogram_of(counts: Nanoseconds, most_bins: int) -> tuple[float, float, list[int]]:
    """Return a row's distribution: the lower edge in nanoseconds, the ratio of a bin's edges, the counts."""
    seen = np.flatnonzero(counts[1:]) + 1  # the first bin has the times of zero, which a logarithmic axis has not
    if not len(seen):
        return 0.0, 1.0, []
    low, high = int(seen[0]), int(seen[-1])
    width = -(-(high - low + 1) // most_bins)
    padded = np.zeros(width * -(-(high - low + 1) // width), dtype=np.int64)
    padded[: high - low + 1] = counts[low : high + 1]
    edge = float(np.exp((low * HISTOGRAM_CODES - FIRST) / PER_NAT))
    return edge, float(np.exp(width * HISTOGRAM_CODES / PER_NAT)), padded.reshape(-1, width).sum(axis=1).tolist()
