"""Read the records of one rank in one pass: steps, phases, rows, memory and the slowest steps, in bounded memory."""

from __future__ import annotations

import base64
import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, isfinite
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..._stats.rows import RowKey, step_rows
from ..._storage.records import Frames, record_files
from ...frame import UNTIMED_LANE, Layout, Nanoseconds, Phase, StepFrame

Codes = npt.NDArray[np.uint16]
"""Durations on a logarithmic scale: a tenth of their size as text, within 0.03 %."""

MISSING: Final = 0
"""The code of a row that did not occur in a step; it is less than all others."""
ZERO: Final = 1
FIRST: Final = 2
"""The code of one nanosecond."""
PER_NAT: Final = 2000
"""Codes in a factor of e: neighbours differ by 0.05 %, and the last code is two days."""
STEP_BINS: Final = 2048
"""The most bins of steps: about as many as a chart has pixels."""
SLOW_STEPS: Final = 32
"""The slowest steps, which are kept with the times of all their rows."""


def encode(ns: Nanoseconds) -> Codes:
    """Return the codes of durations; a negative one is coded as zero."""
    positions = FIRST + np.rint(PER_NAT * np.log(np.maximum(ns, 1)))
    codes: Codes = np.where(ns > 0, np.minimum(positions, np.iinfo(np.uint16).max), ZERO).astype(np.uint16)
    return codes


def as_text(codes: Codes) -> str:
    """Return codes as base64 of little-endian 16-bit numbers."""
    return base64.b64encode(np.ascontiguousarray(codes, dtype="<u2").tobytes()).decode("ascii")


class QuantileBins:
    """Collect the codes of many rows; a bin for each ``stride`` steps has their medians and 95th percentiles.

    A shorter vector of codes lacks the last rows: they were not yet known.
    """

    def __init__(self, stride: int) -> None:
        self.stride = max(stride, 1)
        self.first: list[int] = []
        self.last: list[int] = []
        # The quantiles of a bin are those of at most 512 evenly spaced steps.
        self._every = ceil(self.stride / 512)
        self._count = 0
        self._samples: list[Codes] = []
        self._bins: list[Codes] = []

    def add(self, step: int, codes: Codes) -> None:
        """Add the codes of one step."""
        if not self._count:
            self.first.append(step)
            self.last.append(step)
        self.last[-1] = step
        if self._count % self._every == 0:
            self._samples.append(codes)
        self._count += 1
        if self._count == self.stride:
            self._close_bin()

    def _close_bin(self) -> None:
        ordered = np.sort(_stacked(self._samples, max(map(len, self._samples))), axis=0)
        present = (ordered != MISSING).sum(axis=0)
        ranks = [np.maximum(np.ceil(q * present).astype(np.int64), 1) - 1 for q in (0.5, 0.95)]
        places = np.minimum(len(ordered) - present + np.stack(ranks), len(ordered) - 1)
        self._bins.append(np.take_along_axis(ordered, places, axis=0))
        self._samples, self._count = [], 0

    def result(self, rows: int) -> tuple[Codes, Codes]:
        """Return the medians and the 95th percentiles: rows × bins."""
        if self._count:
            self._close_bin()
        p50, p95 = (_stacked([one[at] for one in self._bins], rows).T for at in range(2))
        return p50, p95


def _stacked(vectors: list[Codes], width: int) -> Codes:
    """Return vectors as the rows of a matrix, filled up with ``MISSING``."""
    matrix = np.full((len(vectors), width), MISSING, dtype=np.uint16)
    for at, vector in enumerate(vectors):
        matrix[at, : len(vector)] = vector
    return matrix


class ValueBins:
    """Collect a few kinds of values; a bin for each ``stride`` steps has the largest of each kind, or the mean."""

    def __init__(self, stride: int, *, largest: bool) -> None:
        self.steps: list[int] = []
        self._stride = max(stride, 1)
        self._largest = largest
        self._count = 0
        self._values: dict[str, list[tuple[float, int]]] = {}

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add the values of one step."""
        if not self._count:
            self.steps.append(step)
        self._count = (self._count + 1) % self._stride
        for key, value in values.items():
            if not isfinite(value) or (key not in self._values and len(self._values) >= 16):
                continue
            column = self._values.setdefault(key, [])
            column += [(0.0, 0)] * (len(self.steps) - len(column))
            known, count = column[-1]
            column[-1] = (max(known, value) if self._largest and count else known + value, count + 1)

    def result(self) -> dict[str, list[float | None]]:
        """Return a column for each kind; None where a bin has no value of it."""
        found = {}
        for key, column in self._values.items():
            padded = column + [(0.0, 0)] * (len(self.steps) - len(column))
            sums = [(value if self._largest else value / max(count, 1), count) for value, count in padded]
            found[key] = [value if count else None for value, count in sums]
        return found


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
    codes: Codes


class RunHistory:
    """The records of one rank: ``times`` of the steps, their maxima and phases, the times of the rows, readings."""

    def __init__(self, most_steps: int, row_bins: int) -> None:
        stride = ceil(most_steps / STEP_BINS)
        self.steps = self.warmup = self.bad_lines = 0
        self.times = QuantileBins(stride)
        self.longest = ValueBins(stride, largest=True)
        self.phases = ValueBins(stride, largest=False)
        self.row_times = QuantileBins(ceil(most_steps / row_bins))
        self.memory = ValueBins(stride, largest=True)
        self.scalars = ValueBins(stride, largest=False)
        self.rows: list[RecordedRow] = []
        self._index: dict[RowKey, int] = {}
        self._dropped: set[RowKey] = set()
        self._of_layout: dict[Layout, Nanoseconds] = {}
        self._slow: list[tuple[int, int, SlowStep]] = []

    @property
    def slow(self) -> list[SlowStep]:
        """The slowest steps, the longest first."""
        return [slow for _, _, slow in sorted(self._slow, key=lambda one: (-one[0], one[1]))]

    @property
    def dropped_rows(self) -> int:
        """The number of rows beyond the limit."""
        return len(self._dropped)

    def add(self, frame: StepFrame) -> None:
        """Add one step; of a warm-up step only its memory."""
        self.memory.add(frame.step, frame.memory)
        if frame.warmup:
            self.warmup += 1
            return
        if frame.device_ns is not None and frame.device_duration_ns is None:
            return
        self.steps += 1
        codes, phases = self._codes(frame), {str(phase): ns for phase, ns in frame.phase_ns().items()}
        self.times.add(frame.step, encode(np.array([frame.step_ns], dtype=np.int64)))
        self.longest.add(frame.step, {"step": frame.step_ns})
        self.phases.add(frame.step, {str(phase): phases.get(str(phase), 0) for phase in Phase})
        self.row_times.add(frame.step, codes)
        self.scalars.add(frame.step, frame.scalars)
        if len(self._slow) < SLOW_STEPS or frame.step_ns > self._slow[0][0]:
            slow = SlowStep(frame.step, frame.start_unix_ns, frame.step_ns, phases, codes)
            entry = (frame.step_ns, self.steps, slow)  # the count differs also for a step that is recorded twice
            (heapq.heappush if len(self._slow) < SLOW_STEPS else heapq.heapreplace)(self._slow, entry)

    def _codes(self, frame: StepFrame) -> Codes:
        ids = self._of_layout.get(frame.layout)
        if ids is None:
            if len(self._of_layout) >= 128:
                self._of_layout.clear()
            ids = self._of_layout[frame.layout] = self._register(frame.layout)
        codes = np.full(len(self.rows), MISSING, dtype=np.uint16)
        kept = ids >= 0
        codes[ids[kept]] = encode(step_rows(frame.layout).totals(frame.total_ns))[kept]
        return codes

    def _register(self, layout: Layout) -> Nanoseconds:
        """Return the index of each row of a layout, -1 for a row beyond the limit."""
        rows = step_rows(layout)
        ids = np.full(len(rows), -1, dtype=np.int64)
        for at, key in enumerate(rows.keys):
            if key.lane == UNTIMED_LANE:
                continue
            if key not in self._index:
                if len(self.rows) >= 4096:
                    self._dropped.add(key)
                    continue
                parent = rows.parents[at]
                above = self._index.get(rows.keys[parent], -1) if parent >= 0 else -1
                self._index[key] = len(self.rows)
                self.rows.append(RecordedRow(key, rows.fqns[at], above))
            ids[at] = self._index[key]
        return ids


def read_history(path: Path, row_bins: int) -> RunHistory:
    """Read a ``steps.jsonl``; ``row_bins`` is the number of bins of each row's history."""
    frames = Frames(path)
    history = RunHistory(_count_lines(path), row_bins)
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
