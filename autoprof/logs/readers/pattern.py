"""A user's own expression: its named groups are the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import AutoprofError
from ..engine import Engine, need_pandas, parse_unique
from ..fields import FIELDS, meaning_of, scale_of
from ..numbers import parse_value
from ..source import Source
from .base import Raw


@dataclass(frozen=True)
class Pattern:
    """Lines in which a regular expression with named groups is found; the other lines are skipped."""

    expression: str
    name: str = "pattern"

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.expression).groupindex
        except re.error as error:
            raise AutoprofError(f"pattern: {self.expression!r} is no regular expression: {error}") from error
        if not groups:
            raise AutoprofError(
                f"pattern: {self.expression!r} has no named group; allowed: groups such as "
                r"(?P<step>\d+) and (?P<loss>[\d.]+)"
            )

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines that match."""
        expression = re.compile(self.expression)
        return float(sum(expression.search(line) is not None for line in sample))

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the file block by block, with DuckDB where it understands the expression and with Python where not."""
        expression = re.compile(self.expression)
        named = sorted(expression.groupindex, key=lambda name: expression.groupindex[name])
        only_named = expression.groups == len(named)
        raw, offset = Raw(self.name), 0
        for block in source.blocks():
            raw.lines += engine.load(block)
            part = self._fast(engine, named) if only_named else None
            if part is None:
                part = _slow(engine, expression, named)
            raw.used_lines += len(part)
            for name in named:
                part[name] = _numbers(part[name], name, raw)
            if "rank" in part:
                part = part.rename(columns={"rank": "_rank"})
            raw.add(part, offset)
            offset += block.count("\n") + 1
        return raw

    def _fast(self, engine: Engine, named: list[str]) -> Any:
        import duckdb

        try:
            return engine.groups(self.expression, named)
        except duckdb.Error:  # RE2 has no look-around and no back-references
            return None


def _slow(engine: Engine, expression: re.Pattern[str], named: list[str]) -> Any:
    found = [(n, match) for n, line in engine.lines() if (match := expression.search(line)) is not None]
    columns: dict[str, list[Any]] = {"_n": [n for n, _ in found]}
    columns |= {name: [match[name] or "" for _, match in found] for name in named}
    return need_pandas().DataFrame(columns)


def _numbers(column: Any, name: str, raw: Raw) -> Any:
    meaning = meaning_of(name)
    kind = FIELDS[meaning.field].kind if meaning is not None else "plain"
    said = scale_of(kind, meaning.unit) if meaning is not None else None
    known = said is not None or kind in ("plain", "count", "rate")

    def read(text: str) -> float:
        nonlocal known
        value = parse_value(text)
        if value is None:
            return float("nan")
        own = scale_of(kind, value.unit)
        known |= own is not None
        return value.number * (own if own is not None else said if said is not None else 1.0)

    numbers = parse_unique(column, read)
    raw.learn(name, meaning, known)
    return need_pandas().Series(numbers, index=column.index, dtype="float64")
