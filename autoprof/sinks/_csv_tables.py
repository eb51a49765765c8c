"""The records as CSV (RFC 4180): a row a step, or a row a span. An empty cell is not measured.

docs/sinks.md describes the columns.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from .._core.names import plain_cell
from .._core.units import UNITS
from .._stats.unit_rates import LogPeriods
from .._storage.atomic import open_replacing
from ..diagnose import SavedSteps
from ..frame import Phase, StepFrame

Row = Iterable[object]

SPAN_COLUMNS: Final = (
    "rank", "step", "warmup", "span", "parent", "name", "fqn", "phase", "lane", "calls", "total_ns", "self_ns",
    "start_ns", "host_ns", "device_start_ns", "device_ns", "host_bound_ns", "memory_start_bytes", "memory_end_bytes",
)  # fmt: skip


def export_steps(saved: SavedSteps, path: Path) -> None:
    """Write a row a step; each value that was ever logged has a column."""
    phases = tuple(Phase)  # with those that another package has added
    logged: dict[str, None] = {}
    for frame in saved.all_frames():
        logged.update(dict.fromkeys(_logged(frame)))

    def rows_of(rank: int) -> Callable[[StepFrame], Iterable[Row]]:
        periods = LogPeriods()

        def rows(frame: StepFrame) -> Iterable[Row]:
            values, own = _logged(frame), frame.phase_ns()
            samples = periods.add(frame).get(UNITS[0])
            yield (
                rank, frame.step, int(frame.warmup), frame.start_unix_ns, frame.step_ns, frame.duration_ns,
                frame.device_duration_ns, None if samples is None else samples.per_second,
                *(own.get(phase, 0) for phase in phases), frame.overhead_ns, frame.dropped, *map(values.get, logged),
            )  # fmt: skip

        return rows

    columns = (
        "rank", "step", "warmup", "start_unix_ns", "step_ns", "duration_ns", "device_duration_ns", "throughput",
        *(f"{phase}_ns" for phase in phases), "overhead_ns", "dropped", *logged,
    )  # fmt: skip
    _export(saved, path, columns, rows_of)


def export_spans(saved: SavedSteps, path: Path) -> None:
    """Write a row a span."""

    def rows_of(rank: int) -> Callable[[StepFrame], Iterable[Row]]:
        def rows(frame: StepFrame) -> Iterable[Row]:
            totals, own = frame.total_ns.tolist(), frame.layout.self_ns(frame.total_ns).tolist()
            for number, span in enumerate(frame.spans):
                times: tuple[object, ...] = totals[number], own[number]
                if frame.device_duration_ns is not None and frame.device_ns is not None and span.device_ns is None:
                    times = None, None  # no device time: no total
                names = number, span.parent, span.name, span.fqn, span.phase, span.lane, span.calls
                measured = (getattr(span, name) for name in SPAN_COLUMNS[12:])
                yield rank, frame.step, int(frame.warmup), *names, *times, *measured

        return rows

    _export(saved, path, SPAN_COLUMNS, rows_of)


def _logged(frame: StepFrame) -> dict[str, float]:
    """Return a step's readings of memory and its scalars, by the names of their columns."""
    return {
        **{f"memory/{name}": value for name, value in frame.memory.items()},
        **{f"scalar/{name}": value for name, value in frame.scalars.items()},
    }


def _export(
    saved: SavedSteps, path: Path, columns: Row, rows_of: Callable[[int], Callable[[StepFrame], Iterable[Row]]]
) -> None:
    with open_replacing(path) as file:
        table = csv.writer(file)
        table.writerow(_plain(columns))
        for rank in saved.ranks:
            rows = rows_of(rank)
            for frame in saved.frames(rank):
                table.writerows(map(_plain, rows(frame)))


def _plain(row: Row) -> Row:
    """Return the cells, none of them a formula."""
    return [plain_cell(cell) if isinstance(cell, str) else cell for cell in row]
