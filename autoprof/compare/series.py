"""A saved run as columns over its recorded steps, one column a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .._stats import step_rows
from .._storage.runs import read_json, read_records
from ..errors import OutputError
from ..frame import LOGGED_LANE, TRAINING_LANE, UNTIMED_LANE, Layout, Nanoseconds, Phase, StepFrame
from ..summary import ClockName
from .data import RunNote

MAX_STEPS: Final = 50_000
"""Steps kept of one rank; of a longer run every second one, every fourth one, …"""
Floats = npt.NDArray[np.float64]


class PairKey(NamedTuple):
    """The identity of a row in any run: lane numbers of other threads and streams differ between runs.

    ``place`` is ``step`` for the training thread, ``parallel`` for other threads and streams.
    """

    name: str
    phase: Phase
    place: Literal["step", "parallel", "logged"] = "step"


class RowSeries(NamedTuple):
    """One row: its nanoseconds in the steps in which it occurred, and the positions of these steps."""

    ns: Nanoseconds
    at: Nanoseconds
    calls: float
    """Calls per step."""
    fqns: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class RankSeries:
    """One rank: columns in nanoseconds over the steps.

    ``sample_ns`` is the host time of a sample. ``wall_ns`` is the time from the begin of a step to that of the next,
    where both were recorded, with excluded time. ``memory`` has readings in bytes.
    """

    rows: Mapping[PairKey, RowSeries]
    phases: Mapping[Phase, Nanoseconds]
    step_ns: Nanoseconds
    host_ns: Nanoseconds
    sample_ns: Floats
    wall_ns: Nanoseconds
    samples: float | None
    memory: Mapping[str, Nanoseconds]


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
        self.frames: list[StepFrame] = []
        self.warmup = self.unsampled = self.untimed = 0
        self.overhead_ns = self.observed_ns = 0
        self.stride = 1
        self._seen = 0
        self._walls: list[int] = []
        self._last: tuple[int, int, int] | None = None

    def add(self, frame: StepFrame) -> None:
        """Add one frame; warm-up and unsampled steps are only counted."""
        self._add_wall(frame)
        self.unsampled += frame.gap_steps
        self.overhead_ns += frame.overhead_ns
        self.observed_ns += frame.duration_ns + frame.gap_ns + frame.gap_overhead_ns
        if frame.warmup:
            self.warmup += 1
            return
        if frame.device_ns is not None and frame.device_duration_ns is None:
            self.untimed += 1
            return
        self._seen += 1
        if self._seen % self.stride:
            return
        self.frames.append(frame)
        if len(self.frames) >= 2 * MAX_STEPS:
            self.frames = self.frames[1::2]
            self.stride *= 2

    def _add_wall(self, frame: StepFrame) -> None:
        """Add the time since the last step began, if it was the step before and the warm-up has ended."""
        last, self._last = self._last, (frame.step, frame.start_unix_ns, frame.duration_ns)
        if last is None or not self._seen or frame.step != last[0] + 1 or frame.gap_steps:
            return
        self._walls.append(max(frame.start_unix_ns - last[1], last[2]))  # the system's clock may be set back
        if len(self._walls) >= 2 * MAX_STEPS:
            self._walls = self._walls[1::2]

    def series(self) -> tuple[RankSeries, ClockName]:
        """Return the columns and their clock; a run with device times excludes steps without one."""
        clock: ClockName = "device" if any(one.device_duration_ns is not None for one in self.frames) else "host"
        if clock == "device":
            kept = [one for one in self.frames if one.device_duration_ns is not None]
            self.untimed += len(self.frames) - len(kept)
            self.frames = kept
        phases = [frame.phase_ns() for frame in self.frames]
        counts = [(frame.duration_ns, frame.scalars.get("samples")) for frame in self.frames]
        samples = [(ns, count) for ns, count in counts if count is not None and isfinite(count) and count > 0]
        memory: dict[str, list[int]] = {}
        for frame in self.frames:
            for name, reading in frame.memory.items():
                if name.endswith("_bytes"):
                    memory.setdefault(name, []).append(reading)
        found = RankSeries(
            rows=_rows(self.frames),
            phases={key: _array(one.get(key, 0) for one in phases) for key in set().union(*phases)},
            step_ns=_array(frame.step_ns for frame in self.frames),
            host_ns=_array(frame.duration_ns for frame in self.frames),
            sample_ns=np.array([ns / count for ns, count in samples], dtype=np.float64),
            wall_ns=_array(self._walls),
            samples=float(np.median([count for _, count in samples])) if samples else None,
            memory={name: _array(readings) for name, readings in memory.items()},
        )
        return found, clock


def over_all_steps(rank: RankSeries, key: PairKey) -> Nanoseconds | None:
    """Return a row's time in all steps, zero where it did not occur."""
    row = rank.rows.get(key)
    if row is None:
        return None
    whole: Nanoseconds = np.zeros(len(rank.step_ns), dtype=np.int64)
    whole[row.at] = row.ns
    return whole


def _array(values: Iterable[int]) -> Nanoseconds:
    return np.fromiter(values, dtype=np.int64)


def _rows(frames: Sequence[StepFrame]) -> dict[PairKey, RowSeries]:
    """Return the rows of all steps."""
    places: dict[Layout, dict[PairKey, list[int]]] = {}
    columns: dict[PairKey, tuple[list[int], list[int]]] = {}
    calls: dict[PairKey, int] = {}
    fqns: dict[PairKey, set[str]] = {}
    for position, frame in enumerate(frames):
        layout = frame.layout
        rows = step_rows(layout)
        if layout not in places:
            found = places[layout] = dict[PairKey, list[int]]()
            for at, row in enumerate(rows.keys):
                if row.lane != UNTIMED_LANE:
                    found.setdefault(_key(row.name, row.phase, row.lane), []).append(at)
            for name, phase, lane, fqn in zip(layout.names, layout.phases, layout.lanes, layout.fqns, strict=True):
                if fqn is not None and lane != UNTIMED_LANE:
                    fqns.setdefault(_key(name, phase, lane), set()).add(fqn)
        totals = rows.totals(frame.total_ns).tolist()
        for key, indices in places[layout].items():
            steps, ns = columns.setdefault(key, ([], []))
            steps.append(position)
            ns.append(sum(totals[at] for at in indices))
            calls[key] = calls.get(key, 0) + sum(int(rows.calls[at]) for at in indices)
    return {
        key: RowSeries(_array(ns), _array(steps), calls[key] / len(ns), frozenset(fqns.get(key, ())))
        for key, (steps, ns) in columns.items()
    }


def _key(name: str, phase: Phase, lane: int) -> PairKey:
    return PairKey(name, phase, "step" if lane == TRAINING_LANE else "logged" if lane == LOGGED_LANE else "parallel")


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
