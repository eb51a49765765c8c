"""``steps.csv`` or ``spans.csv``: a row a step or a span, for every rank.

RFC 4180, but lines end with a newline alone. An empty cell is not measured. docs/sinks.md
describes the columns.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from .._core.names import plain_cell
from .._core.options import Options
from .._core.units import UNITS
from .._stats.unit_rates import LogPeriods
from .._storage.atomic import open_replacing
from .._storage.line_file import FLUSH_S, LineFile
from ..diagnose import SavedSteps
from ..frame import Phase, StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, Export, SinkKind


class CsvOptions(Options):
    """The table `steps.csv` or `spans.csv`."""

    per: Literal["step", "span"] = "step"
    """A row is a step, or a span."""


SPAN_COLUMNS: Final = (
    "rank", "step", "warmup", "span", "parent", "name", "fqn", "phase", "lane", "calls", "total_ns", "self_ns",
    "start_ns", "host_ns", "device_start_ns", "device_ns", "host_bound_ns", "memory_start_bytes", "memory_end_bytes",
)  # fmt: skip


def line(values: Iterable[object]) -> str:
    """Return one line of CSV, without formulas."""
    text = io.StringIO()
    # Before Python 3.13 only the characters of the line's end are quoted: a return in a cell would be an end otherwise.
    csv.writer(text, lineterminator="\r\n").writerow(plain_cell(one) if isinstance(one, str) else one for one in values)
    return f"{text.getvalue()[:-2]}\n"


class StepTable:
    """Rows of steps: fixed columns, then the memory readings and scalars of the first row."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.extra: tuple[str, ...] = ()
        """The columns after the fixed ones: ``memory/…`` and ``scalar/…``."""
        self._phases = tuple(Phase)
        """The phases of the header: a phase that is added later has no column."""
        self._periods = LogPeriods()

    def header(self, first: Mapping[str, object]) -> str:
        """Return the header for rows that have these extra values.

        The last column is a JSON object of logged values that have no column of their own.
        """
        self.extra = tuple(first)
        return line((
            "rank", "step", "warmup", "start_unix_ns", "step_ns", "duration_ns", "device_duration_ns", "throughput",
            *(f"{phase}_ns" for phase in self._phases), "overhead_ns", "dropped", *self.extra, "more",
        ))  # fmt: skip

    def row(self, frame: StepFrame) -> str:
        """Return the frame's row."""
        extra, phases = extras(frame), frame.phase_ns()
        samples = self._periods.add(frame).get(UNITS[0])
        throughput = None if samples is None else samples.per_second
        late = {name: _number(value) for name, value in extra.items() if name not in self.extra}
        return line((
            self.rank, frame.step, int(frame.warmup), frame.start_unix_ns, frame.step_ns, frame.duration_ns,
            frame.device_duration_ns, throughput, *(phases.get(phase, 0) for phase in self._phases),
            frame.overhead_ns, frame.dropped, *(_number(extra.get(name)) for name in self.extra),
            json.dumps(late, ensure_ascii=False) if late else "",
        ))  # fmt: skip


def extras(frame: StepFrame) -> dict[str, float]:
    """Return a step's readings of memory and its scalars, by the names of their columns."""
    return {
        **{f"memory/{name}": value for name, value in frame.memory.items()},
        **{f"scalar/{name}": value for name, value in frame.scalars.items()},
    }


def _number(value: float | None) -> object:
    return "" if value is None else value if isinstance(value, int) else repr(float(value))


class SpanTable:
    """Rows of spans."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def header(self) -> str:
        """Return the first line."""
        return line(SPAN_COLUMNS)

    def rows(self, frame: StepFrame) -> str:
        """Return a row for each of the frame's spans."""
        totals, own = frame.total_ns.tolist(), frame.layout.self_ns(frame.total_ns).tolist()
        head = self.rank, frame.step, int(frame.warmup)
        rows = []
        for number, span in enumerate(frame.spans):
            times: tuple[object, ...] = totals[number], own[number]
            if frame.device_duration_ns is not None and frame.device_ns is not None and span.device_ns is None:
                times = None, None  # no device time: no total
            measured = (getattr(span, name) for name in SPAN_COLUMNS[12:])
            names = span.parent, span.name, span.fqn, span.phase, span.lane, span.calls
            rows.append(line((*head, number, *names, *times, *measured)))
        return "".join(rows)


class CsvSink:
    """Write each frame. The columns of steps are those of the first row; later values are JSON in the last column."""

    def __init__(self, options: CsvOptions, run: RunInfo) -> None:
        self._path = folder_of(run).rank_path / f"{options.per}s.csv"
        self._steps = StepTable(run.rank) if options.per == "step" else None
        self._spans = SpanTable(run.rank)
        self._file = LineFile(self._path, FLUSH_S, run.clock)
        self._begun = False
        self._max_bytes = run.max_bytes
        self._bytes = 0

    def write(self, frame: StepFrame) -> None:
        """Append the frame's row or rows."""
        if self.limit_note is not None:
            return
        if not self._begun:
            self._begun = True
            self._file.write(self._spans.header() if self._steps is None else self._steps.header(extras(frame)))
        rows = self._spans.rows(frame) if self._steps is None else self._steps.row(frame)
        self._bytes += len(rows.encode())
        self._file.write(rows)

    @property
    def limit_note(self) -> str | None:
        """The note that the table has reached its limit and has no further rows, None before."""
        if self._max_bytes is None or self._bytes < self._max_bytes:
            return None
        return f"{self._path.name} has reached its part of output_max_mb: it has no further rows"

    def close(self, summary: Summary) -> None:
        """Write the pending rows and close the file."""
        self._file.close()


def export_steps(saved: SavedSteps, path: Path) -> None:
    """Write a row a step; each value that was ever logged has a column."""
    columns: dict[str, float] = {}
    for frame in saved.all_frames():
        columns.update(dict.fromkeys(extras(frame), 0))
    tables = [StepTable(rank) for rank in saved.ranks]
    _export(saved, path, [table.header(columns) for table in tables], [table.row for table in tables])


def export_spans(saved: SavedSteps, path: Path) -> None:
    """Write a row a span."""
    tables = [SpanTable(rank) for rank in saved.ranks]
    _export(saved, path, [table.header() for table in tables], [table.rows for table in tables])


def _export(saved: SavedSteps, path: Path, headers: list[str], row_of_rank: list[Callable[[StepFrame], str]]) -> None:
    with open_replacing(path) as file:
        file.writelines(headers[:1])
        for rank, row in zip(saved.ranks, row_of_rank, strict=True):
            file.writelines(row(frame) for frame in saved.frames(rank))


SINK = SinkKind(
    CsvOptions,
    CsvSink,
    in_folder=True,
    every_rank=True,
    grows=True,
    close_order=CloseOrder.FILES,
    exports=(
        Export("csv", "a table with a row for each step", export_steps),
        Export("span-csv", "a table with a row for each span", export_spans),
    ),
)
