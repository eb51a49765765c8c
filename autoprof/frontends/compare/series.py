"""A saved run as columns over its recorded steps."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from ...base.frame import LOGGED_LANE, TRAINING_LANE, UNTIMED_LANE, Layout, Phase, StepFrame
from ...base.stats import step_rows
from ...base.storage.runs import read_run
from ...base.summary import ClockName, Summary
from ...errors import OutputError
from .contrast import Floats
from .data import RunNote

MAX_STEPS: Final = 50_000
"""Steps kept of one rank, the last ones of a longer run."""

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
    modules: frozenset[Key]
    """Rows of modules."""


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
        self.frames: deque[tuple[StepFrame, float]] = deque(maxlen=MAX_STEPS)
        """Each frame with its ``WALL``."""
        self.warmup = self.unsampled = self.untimed = self.older = 0
        self.overhead_ns = self.observed_ns = 0
        self._before: StepFrame | None = None

    def add(self, frame: StepFrame) -> None:
        """Add one frame; warm-up and unsampled steps are only counted."""
        before, self._before = self._before, frame
        self.unsampled += frame.gap_steps
        self.overhead_ns += frame.overhead_ns
        self.observed_ns += frame.step_ns + frame.gap_ns + frame.gap_overhead_ns
        if frame.warmup:
            self.warmup += 1
        elif frame.device_ns is not None and frame.device_duration_ns is None:
            self.untimed += 1
        else:
            wall_ns = float("nan")
            if before is not None and self.frames and frame.step == before.step + 1 and not frame.gap_steps:
                # The clock may be set back.
                wall_ns = max(frame.start_unix_ns - before.start_unix_ns, before.duration_ns)
            self.older += len(self.frames) == MAX_STEPS
            self.frames.append((frame, wall_ns))

    def series(self) -> tuple[RankSeries, ClockName]:
        """Return the columns and their clock; a run with device times excludes steps without one."""
        timed = [one for one in self.frames if one[0].device_duration_ns is not None]
        chosen = timed or [*self.frames]
        self.untimed += len(self.frames) - len(chosen)
        columns: defaultdict[Key, Floats] = defaultdict(lambda: np.full(len(chosen), np.nan))
        layouts: defaultdict[Layout, list[int]] = defaultdict(list)
        for position, (frame, wall_ns) in enumerate(chosen):
            layouts[frame.layout].append(position)
            for key, value in (_values(frame) | {WALL: wall_ns}).items():
                columns[key][position] = value
        calls: Counter[Key] = Counter()
        modules: set[Key] = set()
        for layout, positions in layouts.items():
            rows = step_rows(layout)
            keys = [_row_key(row.name, row.phase, row.lane) for row in rows.keys]
            totals = rows.totals(np.stack([chosen[position][0].total_ns for position in positions]))
            for at, (row, key) in enumerate(zip(rows.keys, keys, strict=True)):
                if row.lane != UNTIMED_LANE:  # rows of several lanes may have one key
                    columns[key][positions] = np.nan_to_num(columns[key][positions]) + totals[:, at]
                    calls[key] += int(rows.calls[at]) * len(positions)
            spans = zip(layout.names, layout.phases, layout.lanes, layout.fqns, strict=True)
            modules |= {_row_key(name, phase, lane) for name, phase, lane, fqn in spans if fqn is not None}
        per_step = {key: total / np.count_nonzero(~np.isnan(columns[key])) for key, total in calls.items()}
        return RankSeries(columns, per_step, frozenset(modules)), "device" if timed else "host"


def _values(frame: StepFrame) -> dict[Key, float]:
    """Return all values of a step but those of its rows."""
    found: dict[Key, float] = {STEP: frame.step_ns, HOST: frame.duration_ns}
    samples = frame.scalars.get("samples")
    if samples is not None and isfinite(samples) and samples > 0:
        found |= {SAMPLES: samples, SAMPLE_TIME: frame.step_ns / samples}
    found |= {Key("phase", "", phase): ns for phase, ns in frame.phase_ns().items() if ns > 0}
    return found | {Key("memory", name): one for name, one in frame.memory.items() if name.endswith("_bytes")}


def _row_key(name: str, phase: Phase, lane: int) -> Key:
    place: Place = "step" if lane == TRAINING_LANE else "logged" if lane == LOGGED_LANE else "parallel"
    return Key("row", name, phase, place)


def read_series(path: Path) -> RunSeries:
    """Read all ranks of a saved run. Raises ``OutputError`` for a folder without a run or without records."""
    run = read_run(path)
    if not run.ranks:
        raise OutputError(f"{path}: has no records (steps.jsonl); allowed: a run with the sink jsonl")
    readers: list[_RankReader] = []
    bad_lines = 0
    for rank in run.ranks:
        reader, frames = _RankReader(), run.rank_frames(rank)
        for frame in frames:
            reader.add(frame)
        bad_lines += frames.bad_lines
        readers.append(reader)
    found = [reader.series() for reader in readers]
    clocks = {clock for (_, clock), reader in zip(found, readers, strict=True) if reader.frames}
    if len(clocks) > 1:
        raise OutputError(f"{path}: some ranks have device times and some have not; allowed: a run of one clock")
    first, summary = readers[0], run.summary or Summary.empty()
    note = RunNote(
        path=str(path),
        ranks=run.ranks,
        clock=clocks.pop() if clocks else "host",
        steps=len(first.frames),
        warmup=first.warmup,
        unsampled=max(first.unsampled, summary.unsampled_steps),  # no record follows the last gap
        untimed=first.untimed,
        bad_lines=bad_lines,
        older=first.older,
        ended=run.info["ended"],
        overhead=first.overhead_ns / first.observed_ns if first.observed_ns else None,
    )
    has_excluded = bool(summary.stages or summary.skipped)
    return RunSeries(tuple(series for series, _ in found), note, run.info, has_excluded)
