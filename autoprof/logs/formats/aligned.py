"""Tables whose columns are aligned by spaces or by lines, such as those of fastai, Chainer, skorch and rich.

Source of the lines: ``ConsoleMasterBar.write`` in fastprogress/fastprogress.py, ``PrintReport`` in
chainer/training/extensions/print_report.py, ``PrintLog`` in skorch/callbacks/logging.py, ``LocalWriter`` in
nerfstudio/utils/writer.py. fastai's ``train_loss`` is a moving average (``AvgSmoothLoss`` in fastai/learner.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..extras import import_pandas
from ..fields import METRICS, is_loss, meaning_of
from ..log_file import LogFile
from ..values import parse_value
from ._base import LogFormat, RawRecords
from .csv import convert_table, is_name

_CELLS: Final = re.compile(r"\s*[│┃|]\s*|\s{2,}")
_RULE: Final = re.compile(r"^[\s\-=_+━─┏┳┓┡╇┩┌┬┐├┼┤└┴┘╞╪╡|]*$")
_FASTAI: Final = ("epoch", "train_loss", "valid_loss")
_MAX_HEADER: Final = 1000
_MAX_ROWS: Final = 20_000
"""Rows that are converted at once: their texts are larger than their numbers."""


def _cells(line: str) -> list[str]:
    return _CELLS.split(line.strip().strip("│┃|").strip())


def _framed_cells(line: str) -> list[str]:
    """Return the cells between lines, also empty ones: the names of a header may stand on two lines."""
    text = line.strip()
    return [cell.strip() for cell in text[1:-1].split("|")] if text.startswith("|") and text.endswith("|") else []


@dataclass(frozen=True, slots=True)
class _Row:
    n: int
    cells: list[str]


def _count(log_file: LogFile, raw: RawRecords) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, and count those that are not empty."""
    for n, line in enumerate(log_file.lines(), 1):
        raw.lines += bool(line and not line.isspace())
        yield n, line


def _find_tables(lines: Iterable[tuple[int, str]]) -> Iterable[tuple[list[str], list[_Row]]]:
    """Yield the names of each table, and its rows: lines of as many cells that begin with a number."""
    names: list[str] = []
    rows: list[_Row] = []
    above: list[str] = []
    for n, line in lines:
        if _RULE.match(line) or len(line) > _MAX_HEADER:
            continue
        cells = _cells(line)
        if names and len(cells) == len(names) and parse_value(cells[0]) is not None:
            rows.append(_Row(n, cells))
            if len(rows) == _MAX_ROWS:
                yield names, rows
                rows = []
        else:
            framed = _framed_cells(line)
            both = [f"{up} {low}".strip() for up, low in zip(above, framed, strict=False)]
            above = framed
            cells = both if len(both) > 1 and len(both) == len(framed) and _is_header(both) else cells
            if not _is_header(cells):
                continue
            if names != cells and rows:
                yield names, rows
                rows = []
            names = cells
    if rows:
        yield names, rows


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether the cells are distinct names, of which the first is a counter and another a metric or a loss."""
    if len(cells) < 2 or len(set(cells)) < len(cells) or not all(map(is_name, cells)):
        return False
    first = meaning_of(re.sub(r"\(.*", "", cells[0]))
    others = {meaning.field for name in cells[1:] if (meaning := meaning_of(name)) is not None}
    is_counter = first is not None and first.field in ("step", "epoch")
    return is_counter and (bool(others & METRICS) or any(map(is_loss, cells[1:])))


@dataclass(frozen=True, kw_only=True)
class AlignedFormat(LogFormat):
    """A table with a line of names above its columns and no separator that a reader of CSV knows."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the rows, if they are most of the lines with numbers."""
        rows = sum(len(rows) for _, rows in _find_tables(enumerate(sample)))
        full = sum(1 for line in sample if re.search(r"\d", line))
        return float(rows) if rows > 1 and 2 * rows > full else 0.0

    def read(self, log_file: LogFile) -> RawRecords:
        """Read all tables; the first that is a table of training decides the columns."""
        pd = import_pandas()
        raw = RawRecords(self.name)
        for names, rows in _find_tables(_count(log_file, raw)):
            keys = [re.sub(r"\s*\([^)]*%[^)]*\)", "", name) for name in names]
            if tuple(keys[: len(_FASTAI)]) == _FASTAI and keys[-1] == "time":
                keys[1] = "train_loss, moving average"
                note = "train_loss: moving average, so it is no value of a step"
                raw.notes += [] if note in raw.notes else [note]
            part = pd.DataFrame([row.cells for row in rows], columns=keys)
            columns = convert_table(raw, part, 0)
            kept = columns["_n"].astype(int)
            columns["_n"] = [rows[index].n for index in kept]
            raw.add(columns)
        return raw


FORMAT: Final = AlignedFormat(name="aligned", priority=12)
