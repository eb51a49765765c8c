"""The lines of one tool, of the table ``tools.yaml`` or of a user's own expression."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import AutoprofError
from ..records import Records
from ..values import parse_value
from ._pairs import PLAIN, SPACED, find_pairs, take_counters, take_prefix, take_time


def read_lines(lines: Sequence[str], *, name: str, tool: Mapping[str, Any]) -> Records:
    """Read the lines that an expression of the tool matches; the first expression that matches counts."""
    records = Records(name, tool, tool.get("weight", 1.3))
    patterns = [re.compile(pattern) for pattern in tool["lines"]]
    for line in lines:
        found = next((found for pattern in patterns if (found := pattern.search(line)) is not None), None)
        if found is not None:
            records.rows.append(_read_groups(found, records))
            if name != "pattern":
                _read_names(line, found, records)
    records.used_lines = len(records.rows)
    return records


def read_pattern(lines: Sequence[str], pattern: str) -> Records:
    """Read the lines that a user's own expression matches. Raises ``AutoprofError`` for one that is not usable."""
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise AutoprofError(f"pattern: {pattern!r} is not a regular expression: {error}") from error
    if not groups:
        raise AutoprofError(
            rf"pattern: {pattern!r} has no named group; allowed: groups such as (?P<step>\d+) and (?P<loss>[\d.]+)"
        )
    return read_lines(lines, name="pattern", tool={"lines": [pattern]})


def _read_groups(found: re.Match[str], records: Records) -> dict[str, float]:
    """Return the values of the named groups, and of the tool's numbers without a name."""
    row: dict[str, float] = {}
    groups = {name: text for name, text in found.groupdict().items() if text}
    for column, pattern in records.tool.get("values", {}).items():
        match = re.search(pattern, found.string)
        if match is not None:
            groups[column] = match[1]
    for name, text in groups.items():
        value = parse_value(text)
        if value is not None and name in ("of", "rank"):
            row[f"_{name}"] = value.number
        elif value is not None:
            records.put(row, name, value)
    return row


def _read_names(whole_line: str, found: re.Match[str], records: Records) -> None:
    """Add the counters and the numbers behind names to the last row, but no column that a group has."""
    row = records.rows[-1]
    line = whole_line
    if found.re.groupindex:
        line = f"{line[: found.start()]}|{line[found.end() :]}"
    _, time = take_time(whole_line)
    line, prefix = take_prefix(take_time(line)[0])
    row.update({key: number for key, number in {**time, **prefix}.items() if key not in row})
    known = {meaning.field for name in row if (meaning := records.meanings.get(name)) is not None}
    if "step" not in known:
        line, counters = take_counters(line)
        for name, number in counters.items():
            meaning = records.meaning(name)
            if name == "_of" or (meaning is not None and meaning.field not in known):
                row.setdefault(name, number)
                records.add_meaning(name, meaning)
    for _, name, value in find_pairs(line, SPACED if records.tool.get("spaced") else PLAIN):
        meaning = records.meaning(name)
        if meaning is None or meaning.field not in known:
            records.put(row, name, value)
