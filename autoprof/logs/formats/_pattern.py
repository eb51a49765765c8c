"""The format of a user's own regular expression: its named groups are the columns."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import AutoprofError
from ..fields import FIELDS, is_unit_known, meaning_of, scale_of
from ..log_file import LogFile
from ..values import parse_texts
from ._base import LogFormat, RawRecords, cut_note


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

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file block by block."""
        expression = re.compile(self.expression)
        raw, offset = RawRecords(self.name), 0
        for block in log_file.blocks():
            lines = block.split("\n")
            raw.lines += sum(1 for line in lines if line and not line.isspace())
            found = [(n, match) for n, line in enumerate(lines, 1) if (match := expression.search(line)) is not None]
            raw.used_lines += len(found)
            columns: dict[str, Any] = {"_n": [n for n, _ in found]}
            for name in expression.groupindex:
                texts = [match[name] or "" for _, match in found]
                columns["_rank" if name == "rank" else name] = _to_numbers(texts, name, raw)
            if found and not log_file.ends_with_newline and found[-1][0] == len(lines):
                _drop_cut_groups(raw, found[-1][1], columns)
            raw.add(columns, offset)
            offset += len(lines)
        return raw


def _drop_cut_groups(raw: RawRecords, match: re.Match[str], columns: dict[str, Any]) -> None:
    """Drop the value at the end of the file's last line, which has no line end: it may be the beginning of a number."""
    for name in match.re.groupindex:
        if match.end(name) == len(match.string.rstrip()):
            columns["_rank" if name == "rank" else name][-1] = math.nan
            raw.notes.append(cut_note(name))


def _to_numbers(texts: list[str], name: str, raw: RawRecords) -> Any:
    meaning = meaning_of(name)
    kind = FIELDS[meaning.field].kind if meaning is not None else "plain"
    scale = scale_of(kind, meaning.unit) if meaning is not None else None
    numbers, units = parse_texts(texts, kind, scale)
    unit_in_text = any(scale_of(kind, unit) is not None for unit in units)
    raw.add_meaning(name, meaning, unit_in_text or is_unit_known(kind, scale))
    return numbers
