"""Tables of text: Lightning's ``metrics.csv`` with its half-empty rows, and any other with a header of names."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..fields import COUNTERS, METRICS, SETTINGS, is_loss, meaning_of
from ..log_file import LogFile
from ..values import Value, parse_value
from ._base import LogFormat, RawRecords, read_lines

_NAME: Final = re.compile(r"[^\W\d][^:=(){}]*(?:\([^()]*\))?[^:=(){}]*")


@dataclass(frozen=True, slots=True)
class _Header:
    separator: str
    names: tuple[str, ...]
    is_known: bool
    """Whether one of the names is a known measurement."""

    def cells(self, line: str) -> list[str]:
        """Return the cells of a row."""
        return [
            cell.strip() for cell in next(csv.reader([line.strip()], delimiter=self.separator, skipinitialspace=True))
        ]


@dataclass(frozen=True, kw_only=True)
class CsvFormat(LogFormat):
    """A table with separators. Lines above its header and repeated headers are skipped."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines below the header with as many cells as it has names."""
        header, rows = None, 0
        for line, below in zip(sample, [*sample[1:], ""], strict=True):
            if header is None:
                header = _find_header(line, below)
            else:
                rows += line.count(header.separator) == len(header.names) - 1
        if header is None or rows < 0.3 * sum(bool(line.strip()) for line in sample):
            return 0.0
        # A table of unknown names scores below every other format.
        return rows * (1.0 if header.is_known else 1e-6)

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file line by line."""
        raw = RawRecords(self.name)
        header: _Header | None = None
        before: str | None = None
        for n, line in read_lines(log_file, raw):
            if header is None and before is not None:
                header = _find_header(before, line)
                raw.used_lines += header is not None
            before = line
            cells = [] if header is None else header.cells(line)
            if header is not None and len(cells) == len(header.names) and self._add(raw, n, header, cells):
                raw.used_lines += 1
        return raw

    def _add(self, raw: RawRecords, n: int, header: _Header, cells: Sequence[str]) -> bool:
        """Append a row; return False for one without a measurement and for a repeated header."""
        row: dict[str, float] = {"_n": n}
        is_measured = False
        for name, cell in zip(header.names, cells, strict=True):
            is_ambiguous = header.separator == ";" and "," in cell  # of decimals, or of thousands
            value = parse_value(cell) if cell and not is_ambiguous else None
            if value is not None and raw.put(row, name, value):
                meaning = raw.meanings.get(name)
                is_measured |= meaning is None or meaning.field in METRICS
        if is_measured:
            raw.rows.append(row)
        return is_measured


def _find_header(line: str, below: str) -> _Header | None:
    """Return the header that a line is: distinct names, one a measurement or a counter, with numbers below."""
    for separator in (",", "\t", ";", "|"):
        if separator not in line or len(line) > 8192:
            continue
        names = [name.strip().strip("\"'#").strip() for name in line.strip().split(separator)]
        if not names[0]:
            names[0] = "index"  # the index of a table that pandas wrote
        if len(names) > 2 and not names[-1]:
            names[-1] = "unnamed"  # a separator ends each line
        if len(names) < 2 or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
            continue
        fields = {meaning.field for name in names if (meaning := meaning_of(name)) is not None}
        is_known = bool(fields & (METRICS - SETTINGS)) or any(map(is_loss, names))
        cells = below.strip("\n").split(separator)
        if len(cells) != len(names) or not (is_known or fields & COUNTERS):
            continue
        values: list[Value | None] = [parse_value(cell) for cell in cells[:2] if cell.strip()]
        if all(values):
            return _Header(separator, tuple(names), is_known)
    return None
