"""The format of a user's own regular expression: its named groups are the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import AutoprofError
from ..log_file import LogFile
from ..values import parse_value
from ._base import FormatHints, LogFormat, RawRecords, read_lines

_HINTS: Final = FormatHints()


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
        """Read the file line by line."""
        expression = re.compile(self.expression)
        raw = RawRecords(self.name)
        for n, line in read_lines(log_file, raw):
            found = expression.search(line)
            if found is None:
                continue
            raw.used_lines += 1
            row: dict[str, float] = {"_n": n}
            for name, text in found.groupdict().items():
                value = parse_value(text) if text else None
                converted = None if value is None else raw.convert(name, value, _HINTS)
                if converted is not None:
                    row["_rank" if name == "rank" else name] = converted[1]
            raw.add_row(row)
        return raw
