"""Tables of text: Lightning's ``metrics.csv`` with its half-empty rows, and any other with a header of names."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Final

from ..fields import COUNTERS, METRICS, SETTINGS, meaning_of
from ..records import Records
from ..values import parse_value

_NAME: Final = re.compile(r"[^\W\d][^:=(){}]*(?:\([^()]*\))?[^:=(){}]*")


def read_table(lines: Sequence[str]) -> Records:
    """Read the rows below a header. Other lines, most of which stand above it, are skipped."""
    records = Records("csv")
    filled = [line.strip() for line in lines if line.strip()]
    headers = ((at, _find_header(*filled[at : at + 2])) for at in range(len(filled) - 1))
    at, header = next(((at, header) for at, header in headers if header is not None), (0, None))
    if header is None:
        return records
    separator, names, records.weight = header
    for cells in csv.reader(filled[at + 1 :], delimiter=separator, skipinitialspace=True):
        row: dict[str, float] = {}
        for name, cell in zip(names, cells, strict=False):
            is_ambiguous = separator == ";" and "," in cell  # of decimals, or of thousands
            value = parse_value(cell.strip()) if cell.strip() and not is_ambiguous else None
            if value is not None and len(cells) == len(names):
                records.put(row, name, value)
        if any((meaning := records.meanings.get(name)) is None or meaning.field in METRICS for name in row):
            records.rows.append(row)
    if len(records.rows) < 0.3 * len(filled):
        records.rows.clear()  # lines of a table within another text
    records.used_lines = len(records.rows) + 1
    return records


def _find_header(line: str, below: str) -> tuple[str, list[str], float] | None:
    """Return the separator, the names and the weight of a header: one name is a measurement, with numbers below."""
    for separator in (",", "\t", ";", "|"):
        if separator not in line or len(line) > 8192:
            continue
        names = [name.strip().strip("\"'#").strip() for name in line.split(separator)]
        names[0] = names[0] or "index"  # the index of a table that pandas wrote
        if len(names) > 2:
            names[-1] = names[-1] or "unnamed"  # a separator ends each line
        if len(names) < 2 or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
            continue
        fields = {meaning.field for name in names if (meaning := meaning_of(name)) is not None}
        is_known = bool(fields & (METRICS - SETTINGS))
        cells = below.split(separator)
        is_header = len(cells) == len(names) and (is_known or bool(fields & COUNTERS))
        if is_header and all(parse_value(cell) for cell in cells[:2] if cell.strip()):
            # A table of unknown names counts less than every other format.
            return separator, names, 1.0 if is_known else 1e-6
    return None
