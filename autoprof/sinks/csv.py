"""``steps.csv`` or ``spans.csv``: a row a step or a span, for every rank.

RFC 4180, but lines end with a newline alone. An empty cell is not measured. ``STEP_COLUMNS`` and ``SPAN_COLUMNS`` are
documented in docs/sinks.md.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import numpy as np

from .._names import plain_cell
from .._options import Options
from .._stats.unit_rates import LogPeriods, UnitsSinceLog
from .._storage.atomic import open_replacing
from .._storage.line_file import FLUSH_S, LineFile
from .._units import UNITS
from ..diagnose import SavedSteps
from ..frame import NOT_MEASURED, Layout, Nanoseconds, Phase, StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, Export, SinkKind


class CsvOptions(Options):
    """The table `steps.csv` or `spans.csv`."""

    per: Literal["step", "span"] = "step"
    """A row is a step, or a span."""


_BEFORE_PHASES: Final = (
    "rank", "step", "warmup", "start_unix_ns", "step_ns", "duration_ns", "device_duration_ns", "throughput",
)  # fmt: skip
_AFTER_PHASES: Final = ("overhead_ns", "dropped")
STEP_COLUMNS: Final = (*_BEFORE_PHASES, *(f"{phase}_ns" for phase in Phase), *_AFTER_PHASES)
SPAN_COLUMNS: Final = (
    "rank", "step", "warmup", "span", "parent", "name", "fqn", "phase", "lane", "calls", "total_ns", "self_ns",
    "start_ns", "host_ns", "device_start_ns", "device_ns", "host_bound_ns", "memory_start_bytes", "memory_end_bytes",
)  # fmt: skip
MORE: Final = "more"
"""The last column of steps: a JSON object of logged values that have no column of their own."""

_MEASURED: Final = SPAN_COLUMNS[12:]
"""The columns whose values differ from frame to frame."""
_LAYOUTS: Final = 128
"""Layouts remembered; a run whose steps all differ forgets them all now and then."""


def line(values: Iterable[object]) -> str:
    """Return one line of CSV, without formulas."""
    text = io.StringIO()
    cells = [plain_cell(value) if isinstance(value, str) else value for value in values]
    # Before Python 3.13 only the characters of the line's end are quoted: a return in a cell would be an end otherwise.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return f"{text.getvalue()[:-2]}\n"


class StepTable:
    """Rows of steps: fixed columns, then the memory readings and scalars of the first row."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.extra: tuple[str, ...] = ()
        """The columns after the fixed ones: ``memory/…`` and ``scalar/…``."""
        self.late: dict[str, None] = {}
        """The values that were logged after the header was written."""
        self._phases = tuple(Phase)
        """The phases of the header: a phase that is added later has no column."""
        self._periods = LogPeriods()

    def header(self, first: Mapping[str, object]) -> str:
        """Return the header for rows that have these extra values."""
        self.extra = tuple(first)
        return line((*_BEFORE_PHASES, *(f"{phase}_ns" for phase in self._phases), *_AFTER_PHASES, *self.extra, MORE))

    def row(self, frame: StepFrame) -> str:
        """Return the frame's row."""
        extra = extras(frame)
        late = {name: value for name, value in extra.items() if name not in self.extra}
        self.late.update(dict.fromkeys(late))
        known = (_number(extra.get(name)) for name in self.extra)
        more = json.dumps({name: _number(value) for name, value in late.items()}, ensure_ascii=False) if late else ""
        return line(
            (*_step_values(frame, self.rank, self._phases, self._periods.add(frame).get(UNITS[0])), *known, more)
        )


def extras(frame: StepFrame) -> dict[str, float]:
    """Return a step's readings of memory and its scalars, by the names of their columns."""
    return {
        **{f"memory/{name}": value for name, value in frame.memory.items()},
        **{f"scalar/{name}": value for name, value in frame.scalars.items()},
    }


def _step_values(
    frame: StepFrame, rank: int, columns: tuple[Phase, ...], samples: UnitsSinceLog | None
) -> tuple[object, ...]:
    phases = frame.phase_ns()
    throughput = "" if samples is None or samples.per_second is None else samples.per_second
    device = "" if frame.device_duration_ns is None else frame.device_duration_ns
    return (
        rank, frame.step, int(frame.warmup), frame.start_unix_ns, frame.step_ns, frame.duration_ns, device, throughput,
        *(phases.get(phase, 0) for phase in columns), frame.overhead_ns, frame.dropped,
    )  # fmt: skip


def _number(value: float | None) -> object:
    return "" if value is None else value if isinstance(value, int) else repr(float(value))


class SpanTable:
    """Rows of spans; the columns that depend on the layout alone are formatted once."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self._static: dict[Layout, list[str]] = {}

    def header(self) -> str:
        """Return the first line."""
        return line(SPAN_COLUMNS)

    def rows(self, frame: StepFrame) -> str:
        """Return a row for each of the frame's spans."""
        static = self._of(frame.layout)
        total = frame.total_ns
        columns = [total.tolist(), frame.layout.self_ns(total).tolist(), *(_cells(frame, name) for name in _MEASURED)]
        if frame.device_duration_ns is not None and frame.device_ns is not None:  # no device time: no total
            unseen = frame.device_ns == NOT_MEASURED
            columns[:2] = (
                [("" if out else ns) for ns, out in zip(column, unseen, strict=True)] for column in columns[:2]
            )
        head = f"{self.rank},{frame.step},{int(frame.warmup)},"
        return "".join(
            f"{head}{fixed},{','.join(map(str, values))}\n"
            for fixed, *values in zip(static, *columns, strict=True)
        )  # fmt: skip

    def _of(self, layout: Layout) -> list[str]:
        static = self._static.get(layout)
        if static is None:
            if len(self._static) >= _LAYOUTS:
                self._static.clear()
            columns = zip(
                layout.parents, layout.names, layout.fqns, layout.phases, layout.lanes, layout.calls, strict=True
            )
            static = self._static[layout] = [
                line((span, "" if parent < 0 else parent, name, fqn or "", phase, lane, calls))[:-1]
                for span, (parent, name, fqn, phase, lane, calls) in enumerate(columns)
            ]
        return static


def _cells(frame: StepFrame, name: str) -> list[object]:
    column: Nanoseconds | None = getattr(frame, name)
    if column is None:
        return [""] * len(frame.layout)
    if name in ("start_ns", "host_ns"):
        return list(column.tolist())
    seen = frame.device_ns if name == "device_start_ns" and frame.device_ns is not None else column
    return list(np.where(seen == NOT_MEASURED, "", column.astype(object)).tolist())


class CsvSink:
    """Write each frame.

    The columns of steps are those of the first row. Values that are logged later for the first time go to the last
    column as JSON; when the sink is closed, the file is rewritten with columns of their own.
    """

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
        """Write the pending rows, close the file, and give late values columns of their own."""
        self._file.close()
        if self._steps is not None and self._steps.late:
            add_columns(self._path, tuple(self._steps.late))


def add_columns(path: Path, late: tuple[str, ...]) -> None:
    """Rewrite a table of steps with columns for the values of its last one; one row at a time in memory."""
    with path.open(encoding="utf-8", newline="") as source, open_replacing(path) as target:
        rows = csv.reader(source)
        header = next(rows)
        target.write(line((*header[:-1], *late, MORE)))
        for row in rows:
            more = json.loads(row[-1]) if row[-1] else {}
            target.write(line((*row[:-1], *(more.get(name, "") for name in late), "")))


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
