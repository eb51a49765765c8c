"""The records as CSV (RFC 4180), a row a step. An empty cell is not measured. docs/sinks.md describes the columns."""

from __future__ import annotations

import csv
from pathlib import Path

from .._core.units import UNITS
from .._stats.unit_rates import LogPeriods
from .._storage.atomic import open_replacing
from ..diagnose import SavedSteps
from ..frame import Phase, StepFrame


def export_steps(saved: SavedSteps, path: Path) -> None:
    """Write a row a step; each value that was ever logged has a column."""
    phases = tuple(Phase)  # with those that another package has added
    logged: dict[str, None] = {}
    for frame in saved.all_frames():
        logged.update(dict.fromkeys(_logged(frame)))
    columns = (
        "rank", "step", "warmup", "start_unix_ns", "step_ns", "duration_ns", "device_duration_ns", "throughput",
        *(f"{phase}_ns" for phase in phases), "overhead_ns", "dropped", *logged,
    )  # fmt: skip
    with open_replacing(path) as file:
        table = csv.writer(file)
        table.writerow(columns)
        for rank in saved.ranks:
            periods = LogPeriods()
            for frame in saved.frames(rank):
                values, own = _logged(frame), frame.phase_ns()
                samples = periods.add(frame).get(UNITS[0])
                table.writerow((
                    rank, frame.step, int(frame.warmup), frame.start_unix_ns, frame.step_ns, frame.duration_ns,
                    frame.device_duration_ns, None if samples is None else samples.per_second,
                    *(own.get(phase, 0) for phase in phases), frame.overhead_ns, frame.dropped,
                    *map(values.get, logged),
                ))  # fmt: skip


def _logged(frame: StepFrame) -> dict[str, float]:
    """Return a step's readings of memory and its scalars, by the names of their columns."""
    return {
        **{f"memory/{name}": value for name, value in frame.memory.items()},
        **{f"scalar/{name}": value for name, value in frame.scalars.items()},
    }
