"""A saved run as columns over its recorded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from .._stats import step_rows
from .._storage.runs import read_json, read_records
from ..errors import OutputError
from ..frame import LOGGED_LANE, TRAINING_LANE, UNTIMED_LANE, Layout, Phase, StepFrame
from ..summary import ClockName
from .contrast import Floats
from .data import RunNote

MAX_STEPS: Final = 50_000
"""Steps kept of one rank; of a longer run every second one, every fourth one, …"""

Place = Literal["step", "parallel", "logged"]


class Key(NamedTuple):
    """The identity of a column in any run: lane numbers of other threads and streams differ between runs.

    ``place`` of a row is ``step`` for the training thread, ``parallel`` for other threads and streams.
    """

    kind: Literal["whole", "phase", "row", "memory"]
    name: str
    phase: Phase | None = None
    place: Place = "step"


STEP: Final = Key("whole", "step")
HOST: Final = Key("whole", "host")
WALL: Final = Key("whole", "wall")
"""The time from the begin of the step before, where that was recorded, with excluded time."""
SAMPLES: Final = Key("whole", "samples")
SAMPLE_TIME: Final = Key("whole", "sample time")
"""The host time of a sample."""


@dataclass(frozen=True, slots=True, eq=False)
class RankSeries:
    """One rank: columns over the steps, in nanoseconds or bytes, NaN where a step has no value."""

    columns: Mapping[Key, Floats]
    calls: Mapping[Key, float]
    """Calls of each row in a step that has it."""
    fqns: Mapping[Key, frozenset[str]]


@dataclass(frozen=True, slots=True, eq=False)
class RunSeries:
    """One run: its ranks, a note on its records, and the contents of ``run.json``."""

    ranks: tuple[RankSeries, ...]
    note: RunNote
    info: Mapping[str, Any]
    has_excluded: bool = False
    """Whether the summary has time that belongs to no step, or steps that are excluded."""


class _RankReader:
    """Collect the frames of one rank."""

    def __init__(self) -> None:
        self.frames: list[tuple[StepFrame, float]] = []
        """Each frame with its ``WALL``."""
        self.warmup = self.unsampled = self.untimed = 0
        self.overhead_ns = self.observed_ns = 0
        self.stride = 1
        self._seen = 0
        self._before: StepFrame | None = None

    def add(self, frame: StepFrame) -> None:
        """Add one frame; warm-up and unsampled steps are only counted."""
        before, self._before = self._before, frame
        self.unsampled += frame.gap_steps
        self.overhead_ns += frame.overhead_ns
        self.observed_ns += frame.duration_ns + frame.gap_ns + frame.gap_overhead_ns
        if frame.warmup:
            self.warmup += 1
            return
        if frame.device_ns is not None and frame.device_duration_ns is None:
            self.untimed += 1
            return
        wall_ns = float("nan")
        if before is not None and self._seen and frame.step == before.step + 1 and not frame.gap_steps:
            wall_ns = max(frame.start_unix_ns - before.start_unix_ns, before.duration_ns)  # the clock may be set back
        self._seen += 1
        if self._seen % self.stride:
            return
        self.frames.append((frame, wall_ns))
        if len(self.frames) >= 2 * MAX_STEPS:
            self.frames = self.frames[1::2]
            self.stride *= 2

    def series(self) -> tuple[RankSeries, ClockName]:
        """Return the columns and their clock; a run with device times excludes steps without one."""
        timed = [one for one in self.frames if one[0].device_duration_ns is not None]
        clock: ClockName = "device" if timed else "host"
        if timed:
            self.untimed += len(self.frames) - len(timed)
            self.frames = timed
        table = _Table(len(self.frames))
        for position, (frame, wall_ns) in enumerate(self.frames):
            table.add(position, _values(frame) | {WALL: wall_ns})
        return table.with_rows([frame for frame, _ in self.frames]), clock


def _values(frame: StepFrame) -> dict[Key, float]:
    """Return all values of a step but those of its rows."""
    found: dict[Key, float] = {STEP: frame.step_ns, HOST: frame.duration_ns}
    samples = frame.scalars.get("samples")
    if samples is not None and isfinite(samples) and samples > 0:
        found |= {SAMPLES: samples, SAMPLE_TIME: frame.duration_ns / samples}
    found |= {Key("phase", "", phase): ns for phase, ns in frame.phase_ns().items() if ns > 0}
    return found | {Key("memory", name): one for name, one in frame.memory.items() if name.endswith("_bytes")}


class _Table:
    """Columns of ``steps`` values."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._columns: dict[Key, Floats] = {}

    def _column(self, key: Key) -> Floats:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = np.full(self._steps, np.nan)
        return column

    def add(self, position: int, values: Mapping[Key, float]) -> None:
        for key, value in values.items():
            self._column(key)[position] = value

    def with_rows(self, frames: Sequence[StepFrame]) -> RankSeries:
        """Add the rows of all steps, the steps of one layout at once."""
        alike: dict[Layout, list[int]] = {}
        for position, frame in enumerate(frames):
            alike.setdefault(frame.layout, []).append(position)
        calls: dict[Key, float] = {}
        fqns: dict[Key, set[str]] = {}
        for layout, positions in alike.items():
            rows = step_rows(layout)
            totals = rows.totals(np.stack([frames[position].total_ns for position in positions]))
            places: dict[Key, list[int]] = {}
            for at, row in enumerate(rows.keys):
                if row.lane != UNTIMED_LANE:
                    places.setdefault(_row_key(row.name, row.phase, row.lane), []).append(at)
            for key, indices in places.items():
                self._column(key)[positions] = totals[:, indices].sum(axis=1)
                calls[key] = calls.get(key, 0.0) + float(rows.calls[indices].sum()) * len(positions)
            for name, phase, lane, fqn in zip(layout.names, layout.phases, layout.lanes, layout.fqns, strict=True):
                if fqn is not None and lane != UNTIMED_LANE:
                    fqns.setdefault(_row_key(name, phase, lane), set()).add(fqn)
        per_step = {key: total / np.count_nonzero(~np.isnan(self._columns[key])) for key, total in calls.items()}
        return RankSeries(self._columns, per_step, {key: frozenset(names) for key, names in fqns.items()})


def _row_key(name: str, phase: Phase, lane: int) -> Key:
    place: Place = "step" if lane == TRAINING_LANE else "logged" if lane == LOGGED_LANE else "parallel"
    return Key("row", name, phase, place)


def read_series(path: Path, ranks: tuple[int, ...] | None = None) -> RunSeries:
    """Read all ranks of a saved run, or these. Raises ``OutputError`` for a folder without a run or without records."""
    run = read_records(path)
    chosen = run.ranks if ranks is None else tuple(rank for rank in run.ranks if rank in ranks)
    if not chosen:
        have = ", ".join(map(str, run.ranks)) or "none (the sink jsonl writes them)"
        missing = "has no records (steps.jsonl)" if ranks is None else f"has no records of rank {ranks[0]}"
        raise OutputError(f"{path}: {missing}; ranks with records: {have}")
    readers: list[_RankReader] = []
    bad_lines = 0
    for rank in chosen:
        reader, frames = _RankReader(), run.rank_frames(rank)
        for frame in frames:
            reader.add(frame)
        bad_lines += frames.bad_lines
        readers.append(reader)
    found = [reader.series() for reader in readers]
    clocks = {clock for (_, clock), reader in zip(found, readers, strict=True) if reader.frames}
    if len(clocks) > 1:
        raise OutputError(f"{path}: some ranks have device times and some have not; choose one rank")
    first, summary = readers[0], _read_summary(path)
    saved = summary.get("unsampled_steps")  # no record follows the last gap
    unsampled = saved if isinstance(saved, int) else 0
    note = RunNote(
        path=str(path),
        ranks=chosen,
        clock=clocks.pop() if clocks else "host",
        steps=len(first.frames),
        warmup=first.warmup,
        unsampled=max(first.unsampled, unsampled if chosen[0] == run.ranks[0] else 0),
        untimed=first.untimed,
        bad_lines=bad_lines,
        stride=first.stride,
        ended=run.info.get("ended"),
        overhead=first.overhead_ns / first.observed_ns if first.observed_ns else None,
    )
    ranks_found = tuple(series for series, _ in found)
    has_excluded = bool(summary.get("excluded") or summary.get("skipped"))
    return RunSeries(ranks_found, note, run.info, has_excluded)


def _read_summary(path: Path) -> Mapping[str, Any]:
    """Read the summary; it may be missing or of another version."""
    try:
        found = read_json(path / "summary.json")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
