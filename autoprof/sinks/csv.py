"""``steps.csv`` or ``spans.csv``: a row a step or a span, for every rank."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .._reports.csv import MORE, SpanTable, StepTable, extras, line
from .._storage.line_file import LineFile
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of

if TYPE_CHECKING:
    from ..config.schema import CsvOptions


class CsvSink:
    """Write each Nth frame.

    The columns of steps are those of the first row; what is logged later for the first time goes to the last column as
    JSON, and gets columns of its own when the file is written anew at the end.
    """

    def __init__(self, options: CsvOptions, run: RunInfo) -> None:
        self._every = options.every
        self._count = 0
        self._path = folder_of(run).rank_path / f"{options.per}s.csv"
        self._steps = StepTable(run.rank) if options.per == "step" else None
        self._spans = SpanTable(run.rank)
        self._file = LineFile(self._path, options.flush_s, run.clock)
        self._begun = False

    def write(self, frame: StepFrame) -> None:
        """Append the frame's row or rows."""
        self._count += 1
        if self._count % self._every:
            return
        if not self._begun:
            self._begun = True
            self._file.write(self._spans.header() if self._steps is None else self._steps.header(extras(frame)))
        self._file.write(self._spans.rows(frame) if self._steps is None else self._steps.row(frame))

    def close(self, summary: Summary) -> None:
        """Write what is pending, and give what came late columns of its own."""
        self._file.close()
        if self._steps is not None and self._steps.late:
            spread(self._path, tuple(self._steps.late))


def spread(path: Path, late: tuple[str, ...]) -> None:
    """Write a table of steps anew, with columns for what its last one holds; a row at a time in memory."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with path.open(encoding="utf-8", newline="") as source, draft.open("w", encoding="utf-8", newline="") as target:
            target.writelines(_spread_rows(csv.reader(source), late))
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _spread_rows(rows: Iterator[list[str]], late: tuple[str, ...]) -> Iterator[str]:
    header = next(rows)
    yield line((*header[:-1], *late, MORE))
    for row in rows:
        more = json.loads(row[-1]) if row[-1] else {}
        yield line((*row[:-1], *(more.get(name, "") for name in late), ""))
