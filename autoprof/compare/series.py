"""A saved run as columns over its recorded steps, one column a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class _Step(NamedTuple):
    """The numbers of one frame that are compared."""

    layout: Layout
    totals: Nanoseconds
    step_ns: int
    host_ns: int
    phases: Mapping[Phase, int]
    samples: float | None
    memory: Mapping[str, int]
    on_device: bool


@dataclass(frozen=True, slots=True, eq=False)
class RankSeries:
    """One rank: columns in nanoseconds over the steps in which a row occurred; ``at`` has the positions of the steps.

    ``sample_ns`` is the host time of a sample. ``wall_ns`` is the time from the begin of a step to that of the next,
    where both were recorded, with excluded time. ``memory`` has readings in bytes.
    """

    rows: Mapping[PairKey, Nanoseconds]
    at: Mapping[PairKey, Nanoseconds]
    phases: Mapping[Phase, Nanoseconds]
    step_ns: Nanoseconds
    host_ns: Nanoseconds
    sample_ns: Floats
    wall_ns: Nanoseconds
    samples: float | None
    memory: Mapping[str, Nanoseconds]
    fqns: Mapping[PairKey, frozenset[str]]
    calls: Mapping[PairKey, float]


@dataclass(frozen=True, slots=True, eq=False)
class RunSeries:
    """One run: its ranks, a note on its records, and the contents of ``run.json``."""

    ranks: tuple[RankSeries, ...]
    note: RunNote
    info: Mapping[str, Any]
    has_excluded: bool = False
    """Whether the summary has time that belongs to no step, or steps that are excluded."""

    @property
    def limit_ns(self) -> int:
        """The clock's limit: shorter spans cannot be measured."""
        return int((self.info.get("clock") or {}).get("limit_ns") or 0)


class _RankReader:
    """Collect the frames of one rank."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
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
        samples = frame.scalars.get("samples")
        known = samples if samples is not None and isfinite(samples) and samples > 0 else None
        totals = step_rows(frame.layout).totals(frame.total_ns)
        on_device = frame.device_duration_ns is not None
        shape = (frame.layout, totals, frame.step_ns, frame.duration_ns, frame.phase_ns(), known)
        self.steps.append(_Step(*shape, frame.memory, on_device))
        if len(self.steps) >= 2 * MAX_STEPS:
            self.steps = self.steps[1::2]
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
        clock: ClockName = "device" if any(step.on_device for step in self.steps) else "host"
        if clock == "device":
            kept = [step for step in self.steps if step.on_device]
            self.untimed += len(self.steps) - len(kept)
            self.steps = kept
        rows, at, calls, fqns = _columns(self.steps)
        phases = {phase for step in self.steps for phase in step.phases}
        samples = [(step.host_ns, step.samples) for step in self.steps if step.samples is not None]
        memory: dict[str, list[int]] = {}
        for step in self.steps:
            for name, reading in step.memory.items():
                memory.setdefault(name, []).append(reading)
        found = RankSeries(
            rows=rows,
            at=at,
            phases={phase: _array(step.phases.get(phase, 0) for step in self.steps) for phase in phases},
            step_ns=_array(step.step_ns for step in self.steps),
            host_ns=_array(step.host_ns for step in self.steps),
            sample_ns=np.array([ns / count for ns, count in samples], dtype=np.float64),
            wall_ns=_array(self._walls),
            samples=float(np.median([count for _, count in samples])) if samples else None,
            memory={name: _array(readings) for name, readings in memory.items() if name.endswith("_bytes")},
            fqns=fqns,
            calls=calls,
        )
        return found, clock


def over_all_steps(rank: RankSeries, key: PairKey) -> Nanoseconds | None:
    """Return a row's time in all steps, zero where it did not occur."""
    column = rank.rows.get(key)
    if column is None:
        return None
    whole: Nanoseconds = np.zeros(len(rank.step_ns), dtype=np.int64)
    whole[rank.at[key]] = column
    return whole


def _array(values: Iterable[int]) -> Nanoseconds:
    return np.fromiter(values, dtype=np.int64)


def _columns(
    steps: list[_Step],
) -> tuple[dict[PairKey, Nanoseconds], dict[PairKey, Nanoseconds], dict[PairKey, float], dict[PairKey, frozenset[str]]]:
    """Return each row's column, its step positions, its calls per step and its fqns.

    The steps of a layout form one matrix; the columns of a key are then put back into the order of the steps.
    """
    at: dict[Layout, list[int]] = {}
    for position, step in enumerate(steps):
        at.setdefault(step.layout, []).append(position)
    pieces: dict[PairKey, list[tuple[Nanoseconds, Nanoseconds]]] = {}
    calls: dict[PairKey, int] = {}
    fqns: dict[PairKey, set[str]] = {}
    for layout, indices in at.items():
        rows = step_rows(layout)
        matrix = np.stack([steps[index].totals for index in indices])
        places: dict[PairKey, list[int]] = {}
        for column, row in enumerate(rows.keys):
            if row.lane != UNTIMED_LANE:
                places.setdefault(_key(row.name, row.phase, row.lane), []).append(column)
        for key, columns in places.items():
            pieces.setdefault(key, []).append((_array(indices), matrix[:, columns].sum(axis=1)))
            calls[key] = calls.get(key, 0) + int(rows.calls[columns].sum()) * len(indices)
        for name, phase, lane, fqn in zip(layout.names, layout.phases, layout.lanes, layout.fqns, strict=True):
            if fqn is not None and lane != UNTIMED_LANE:
                fqns.setdefault(_key(name, phase, lane), set()).add(fqn)
    found: dict[PairKey, Nanoseconds] = {}
    where: dict[PairKey, Nanoseconds] = {}
    for key, parts in pieces.items():
        places_of = np.concatenate([index for index, _ in parts])
        order = np.argsort(places_of, kind="stable")
        where[key], found[key] = places_of[order], np.concatenate([values for _, values in parts])[order]
    per_step = {key: calls[key] / max(len(column), 1) for key, column in found.items()}
    return found, where, per_step, {key: frozenset(fqns.get(key, ())) for key in found}


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
    clocks = {clock for (_, clock), reader in zip(found, readers, strict=True) if reader.steps}
    if len(clocks) > 1:
        raise OutputError(f"{path}: some ranks have device times and some have not; choose one rank")
    first, summary = readers[0], _read_summary(path)
    saved = summary.get("unsampled_steps")  # no record follows the last gap
    unsampled = saved if isinstance(saved, int) else 0
    note = RunNote(
        path=str(path),
        ranks=chosen,
        clock=clocks.pop() if clocks else "host",
        steps=len(first.steps),
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
