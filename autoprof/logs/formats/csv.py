"""Tables of text: Lightning's ``metrics.csv`` with its half-empty rows, and any other with a header of known names."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..extras import import_pandas
from ..fields import FIELDS, METRICS, is_loss, is_unit_known, lacks_thing, meaning_of, scale_of
from ..log_file import LogFile
from ..values import parse_texts, parse_value
from ._base import LogFormat, RawRecords, cut_note

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS: Final = (",", "\t", ";", "|")
_NO_NAME: Final = "unnamed"
_ROWS_COMPARED: Final = 20
"""Rows whose last values are compared with that of a row without an end."""
_HEADER_SEARCHED_LINES: Final = 2000
_HEADER_MAX_CHARACTERS: Final = 8192


@dataclass(frozen=True, slots=True)
class _Header:
    index: int
    """Lines before it."""
    separator: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CsvFormat(LogFormat):
    """A table with separators. Lines above its header and repeated headers are skipped."""

    needs_metric: bool = True
    """Whether one of the names is a known metric. False: any names of columns with numbers are a header."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines below the header with as many values as it has names."""
        header = _find_header(sample, self.needs_metric)
        if header is None:
            return 0.0
        rows = sum(line.count(header.separator) == len(header.names) - 1 for line in sample[header.index + 1 :])
        return float(rows) if rows >= 0.3 * sum(bool(line.strip()) for line in sample) else 0.0

    def header(self, lines: Sequence[str]) -> tuple[str, ...] | None:
        """Return the names of the columns; None without a header in these lines."""
        header = _find_header(lines, self.needs_metric)
        return None if header is None else header.names

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file block by block with pandas' C parser."""
        pd = import_pandas()
        raw = RawRecords(self.name)
        header: _Header | None = None
        recent: list[str] = []
        offset = 0
        for block in log_file.blocks():
            lines = block.count("\n") + 1
            raw.lines += lines - block.count("\n\n") - (not block.strip())
            text = block
            if header is None:
                header = _find_header(block.split("\n", _HEADER_SEARCHED_LINES), self.needs_metric)
                if header is None:
                    offset += lines
                    continue
                text = "\n".join(block.split("\n")[header.index + 1 :])
                raw.used_lines += 1
            if not log_file.ends_with_newline:
                last_row = text.rpartition("\n")[2]
                if last_row.count(header.separator) < len(header.names) - 1:
                    text = text.rpartition("\n")[0]  # the row was cut off, maybe within its last number
            part = pd.read_csv(
                io.StringIO(text), sep=header.separator, names=list(header.names), index_col=False, on_bad_lines="skip",
                low_memory=False, skipinitialspace=True,
                decimal=_decimal_mark(header, text), quoting=0, encoding_errors="replace",
            )  # fmt: skip
            if not log_file.ends_with_newline:
                _drop_cut_cell(raw, part, [*recent, *text.split("\n")], header)
            recent = text.split("\n")[-_ROWS_COMPARED:]
            raw.add(convert_table(raw, part, lines - len(part), self.needs_metric), offset)
            offset += lines
        return raw


def _drop_cut_cell(raw: RawRecords, part: pd.DataFrame, rows: Sequence[str], header: _Header) -> None:
    """Drop the last value of a table that does not end with a line end, if it may be the beginning of a longer one."""
    cells = [row.rpartition(header.separator)[2].strip() for row in rows[-_ROWS_COMPARED:]]
    name = header.names[-1]
    if not len(part) or not cells[-1] or len(cells) < 2:
        return
    decimals = {len(cell.partition(".")[2]) for cell in cells if "." in cell}
    if len(decimals) == 1 and all("." in cell and "e" not in cell.lower() for cell in cells):
        return  # as many decimals as every row before
    part[name] = part[name].mask(part.index == part.index[-1])
    raw.notes.append(cut_note(name))


def _decimal_mark(header: _Header, text: str) -> str:
    """Return the comma if a table of semicolons has numbers such as ``0,4121`` and none with a point."""
    if header.separator == ";" and re.search(r"\d,\d", text[:65536]) and not re.search(r"\d\.\d", text[:65536]):
        return ","
    return "."


def convert_table(raw: RawRecords, part: pd.DataFrame, start: int, needs_metric: bool = True) -> dict[str, Any]:
    """Return the rows that are records, as numbers in the units of ``fields``."""
    import numpy as np

    columns: dict[str, Any] = {"_n": np.arange(start, start + len(part))}
    measured = []
    for key in part.columns:
        meaning = meaning_of(key)
        kind = FIELDS[meaning.field].kind if meaning is not None else "plain"
        scale = scale_of(kind, meaning.unit) if meaning is not None else None
        columns[key], unit_in_text = _to_numbers(part[key], kind, scale)
        is_known = is_unit_known(kind, scale) and not (meaning and meaning.field == "throughput" and lacks_thing(key))
        raw.add_meaning(key, meaning, unit_in_text or is_known)
        if (meaning is not None and meaning.field in METRICS) or is_loss(key) or not needs_metric:
            measured.append(key)
    frame = import_pandas().DataFrame(columns)
    is_record = frame[measured].notna().any(axis="columns")
    is_sparse = part.isna().sum(axis="columns") >= len(part.columns) - 2
    keep = is_record | (frame.drop(columns="_n").notna().sum(axis="columns").ge(2) & is_sparse)
    raw.used_lines += int(keep.sum())
    return {str(key): frame[key].to_numpy()[keep.to_numpy()] for key in frame}


def _to_numbers(column: Any, kind: str, scale: float | None) -> tuple[Any, bool]:
    """Return a column as numbers in the unit of its kind, and whether its cells hold the unit."""
    numbers = import_pandas().to_numeric(column, errors="coerce").astype("float64")
    numbers = numbers * (scale if scale is not None else 1.0)
    if column.dtype.kind in "fiu":
        return numbers, False
    is_text = column.notna() & numbers.isna()
    if not is_text.any():
        return numbers, False
    numbers = numbers.copy()
    numbers[is_text], units = parse_texts(column[is_text], kind, scale)
    return numbers, any(scale_of(kind, unit) is not None for unit in units)


def _find_header(lines: Sequence[str], needs_metric: bool = True) -> _Header | None:
    """Return the first line of distinct names, one of them a known metric, that has numbers below it."""
    for index, line in enumerate(lines[:_HEADER_SEARCHED_LINES]):
        for separator in _SEPARATORS:
            if separator not in line or len(line) > _HEADER_MAX_CHARACTERS:
                continue
            names = tuple(name.strip().strip("\"'#").strip() for name in line.split(separator))
            if len(names) > 2 and not names[-1]:
                names = (*names[:-1], _NO_NAME)  # a separator ends each line
            if not names[0]:
                names = ("index", *names[1:])  # the index of a table that pandas wrote
            if len(names) < 2 or len(set(names)) < len(names) or not all(map(is_name, names)):
                continue
            fields = {meaning.field for name in names if (meaning := meaning_of(name))}
            if needs_metric and not fields & METRICS and not any(map(is_loss, names)):
                continue
            below = next((text for text in lines[index + 1 :] if text.strip()), None)
            if below is None or below.count(separator) != len(names) - 1:
                continue
            if all(not value.strip() or parse_value(value) is not None for value in below.split(separator)[:2]):
                return _Header(index, separator, names)
    return None


def is_name(text: str) -> bool:
    """Return whether a cell of a header can be the name of a column."""
    return bool(re.match(r"^[^\W\d][^:=(){}]*(?:\([^()]*\))?[^:=(){}]*$", text)) and len(text) < 80


FORMAT: Final = CsvFormat(name="csv", priority=15)
