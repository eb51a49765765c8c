"""The format of a user's own regular expression: its named groups are the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import AutoprofError
from ..extras import import_duckdb, import_pandas
from ..fields import FIELDS, is_unit_known, meaning_of, scale_of
from ..line_database import LineDatabase
from ..log_file import LogFile
from ..values import parse_texts
from ._base import LogFormat, RawRecords


@dataclass(frozen=True, kw_only=True)
class PatternFormat(LogFormat):
    """Lines that match a regular expression with named groups; other lines are skipped."""

    name: str = "pattern"
    expression: str

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.expression).groupindex
        except re.error as error:
            raise AutoprofError(f"pattern: {self.expression!r} is not a regular expression: {error}") from error
        if not groups:
            raise AutoprofError(
                f"pattern: {self.expression!r} has no named group; allowed: groups such as "
                r"(?P<step>\d+) and (?P<loss>[\d.]+)"
            )

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines that match."""
        expression = re.compile(self.expression)
        return float(sum(expression.search(line) is not None for line in sample))

    def read(self, log_file: LogFile, database: LineDatabase) -> RawRecords:
        """Read the file block by block: in DuckDB if it accepts the expression, else in Python."""
        expression = re.compile(self.expression)
        names = sorted(expression.groupindex, key=lambda name: expression.groupindex[name])
        has_unnamed_groups = expression.groups != len(names)
        raw, offset = RawRecords(self.name), 0
        for block in log_file.blocks():
            raw.lines += database.load(block)
            part = None if has_unnamed_groups else _match_in_duckdb(database, self.expression, names)
            if part is None:
                part = _match_in_python(database, expression, names)
            raw.used_lines += len(part)
            for name in names:
                part[name] = _to_numbers(part[name], name, raw)
            if "rank" in part:
                part = part.rename(columns={"rank": "_rank"})
            raw.add(part, offset)
            offset += block.count("\n") + 1
        return raw


def _match_in_duckdb(database: LineDatabase, expression: str, names: list[str]) -> Any:
    try:
        return database.named_groups(expression, names)
    except import_duckdb().Error:  # RE2 has neither look-around nor back-references
        return None


def _match_in_python(database: LineDatabase, expression: re.Pattern[str], names: list[str]) -> Any:
    found = [(n, match) for n, line in database.lines() if (match := expression.search(line)) is not None]
    columns: dict[str, list[Any]] = {"_n": [n for n, _ in found]}
    columns |= {name: [match[name] or "" for _, match in found] for name in names}
    return import_pandas().DataFrame(columns)


def _to_numbers(texts: Any, name: str, raw: RawRecords) -> Any:
    meaning = meaning_of(name)
    kind = FIELDS[meaning.field].kind if meaning is not None else "plain"
    scale = scale_of(kind, meaning.unit) if meaning is not None else None
    numbers, units = parse_texts(texts, kind, scale)
    unit_in_text = any(scale_of(kind, unit) is not None for unit in units)
    raw.add_meaning(name, meaning, unit_in_text or is_unit_known(kind, scale))
    return import_pandas().Series(numbers, index=texts.index, dtype="float64")
