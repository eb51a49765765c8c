"""The lines of one tool, of the table ``tools.yaml`` or of a user's own expression, and the formats of the table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from ...errors import AutoprofError
from ..fields import TABLE, meaning_of
from ..log_file import LogFile
from ..values import parse_value
from ._base import FormatHints, LogFormat, RawRecords, read_lines
from ._pairs import PLAIN, SPACED, find_pairs, take_counters, take_prefix, take_time
from .jsonl import JsonFormat


@dataclass(frozen=True, kw_only=True)
class TextFormat(LogFormat):
    """A format whose records are lines of text."""

    lines: Sequence[str]
    """Expressions that match the lines of records; the first that matches counts. Their named groups are columns, with
    units at the end of the name (``memory_mib``); ``of`` is the number of steps per epoch."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Numbers without a name: by column, an expression with one group."""
    hints: FormatHints = field(default_factory=FormatHints)
    reads_names: bool = True
    """Whether numbers behind a name are read, too. False: only groups and ``values``."""
    spaced: bool = False
    """Whether a name may stand before its number without a sign: ``loss 2.5 (2.7) lr 0.1``."""
    weight: float = 1.3
    """Factor of the score: a format whose lines a more general one also reads has one above 1."""

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [re.compile(pattern) for pattern in self.lines]

    def score(self, sample: Sequence[str]) -> float:
        """Count the records in the sample."""
        return self.weight * sum(self._find(line) is not None for line in sample)

    def _find(self, line: str) -> re.Match[str] | None:
        return next((found for pattern in self._patterns if (found := pattern.search(line)) is not None), None)

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file line by line."""
        raw = RawRecords(self.name)
        for n, whole_line in read_lines(log_file, raw):
            line, time = take_time(whole_line) if self.reads_names else (whole_line, {})
            row = self._parse(line, raw)
            if row is not None:
                raw.used_lines += 1
                raw.rows.append({"_n": n, **time, **row})
        raw.spoiled_by_validation = self.hints.spoiled_by_validation
        return raw

    def _parse(self, line: str, raw: RawRecords) -> dict[str, float] | None:
        """Return the values of a line by name; None if it is no record."""
        special = {"of": "_of", "rank": "_rank"}
        found = self._find(line)
        if found is None:
            return None
        row: dict[str, float] = {}
        groups = [(name, text) for name, text in found.groupdict().items() if text]
        groups += [(column, match[1]) for column, text in self.values.items() if (match := re.search(text, line))]
        for name, text in groups:
            value = parse_value(text)
            if name in special and value is not None:
                row[special[name]] = value.number
            elif value is not None:
                raw.put(row, name, value)
        if not self.reads_names:
            return row
        if found.re.groupindex:
            line = f"{line[: found.start()]}|{line[found.end() :]}"
        known = {meaning.field for name in row if (meaning := meaning_of(name)) is not None}
        line, prefix = take_prefix(line)
        row |= {key: number for key, number in prefix.items() if key not in row}
        if "step" not in known:
            line, counters = take_counters(line)
            for name, number in counters.items():
                meaning = self.hints.meaning(name)
                if name == "_of" or (meaning is not None and meaning.field not in known):
                    row.setdefault(name, number)
                    raw.add_meaning(name, meaning)
        for _, name, value in find_pairs(line, SPACED if self.spaced else PLAIN):
            meaning = self.hints.meaning(name)
            if meaning is None or meaning.field not in known:
                raw.put(row, name, value, self.hints)
        return row


def make_pattern_format(pattern: str) -> TextFormat:
    """Return the format of a user's own expression. Raises ``AutoprofError`` for one that is not usable."""
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise AutoprofError(f"pattern: {pattern!r} is not a regular expression: {error}") from error
    if not groups:
        raise AutoprofError(
            rf"pattern: {pattern!r} has no named group; allowed: groups such as (?P<step>\d+) and (?P<loss>[\d.]+)"
        )
    return TextFormat(name="pattern", lines=[pattern], reads_names=False)


def _make_tool_format(name: str, entry: dict[str, Any]) -> LogFormat:
    """Return the format of one entry: of JSON objects with its ``keys``, or of lines that its ``lines`` match."""
    options = dict(entry)
    hint_keys = options.keys() & {"names", "units", "averages", "spoiled_by_validation"}
    hints = FormatHints(**{key: options.pop(key) for key in hint_keys})
    if "keys" not in options:
        return TextFormat(name=name, hints=hints, **options)
    own, ignored = (frozenset(options.get(key, "").split()) for key in ("keys", "ignored"))
    priority = options.get("priority", 30)
    return JsonFormat(name=name, priority=priority, own_keys=own, ignored_keys=ignored, hints=hints)


TOOL_FORMATS: Final = [_make_tool_format(name, entry) for name, entry in TABLE["tools"].items()]
