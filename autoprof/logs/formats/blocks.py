"""Records of several lines with a name and its value on each: tables, lists and groups.

Source of the lines: ``HumanOutputFormat`` in stable_baselines3/common/logger.py (tables), ``log`` in
rsl_rl/runners/on_policy_runner.py, later in rsl_rl/utils/logger.py (lists), ``ConsoleLoggerCallback`` in
src/olmo_core/train/callbacks/console_logger.py of allenai/OLMo-core.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ..line_forms import COUNTERS, NUMBER_IN_LINE, FormatHints, LineForm, parse_line, plain_line
from ..log_file import LogFile
from ._base import LogFormat, RawRecords, cut_note
from ._text import to_floats

_TABLE_GROUP: Final = re.compile(r"^\s*\|\s*([\w.-]+)/\s*\|\s*\|?\s*$")
_TABLE_ROW: Final = re.compile(r"^\s*\|\s*([^|]*[^|\s])\s*\|\s*([^|]*[^|\s])\s*\|\s*$")
_PAIR_LINE: Final = re.compile(r"^[\s*•|>-]*[^\W\d][^:=|,;]{0,60}?\s*(?::|=)\s*[\[(]?[-+\d.n]")
_COUNTER_IN_KEY: Final = re.compile(r"(?i)\b(?:step|iter|iteration|epoch|update)s?\W*\d")
_HINTS: Final = FormatHints(rename={"fps": "", "time_fps": ""})
_MIN_PAIRS: Final = 2
"""Pairs of a record, below which its lines are not a block."""
_MAX_SHAPES: Final = 50_000


@dataclass(slots=True)
class _LineBlock:
    n: int
    values: dict[str, float]
    lines: int = 1


class _BlockReader:
    """Collects lines with one name and value each into records; a counter or a name that repeats begins the next."""

    def __init__(self) -> None:
        self.blocks: list[_LineBlock] = []
        self.forms: dict[str, LineForm] = {}
        self.numbered: dict[str, int] = {}
        self._block: _LineBlock | None = None
        self._latest: tuple[int, _LineBlock, tuple[str, ...]] | None = None
        """The latest line with pairs: its number, its block and its keys."""
        self._group = ""

    def read(self, lines: Iterable[str], offset: int) -> None:
        """Read the lines of a part of the file; ``offset`` is the number of lines before it."""
        for n, text in enumerate(lines, offset + 1):
            group = _TABLE_GROUP.match(text)
            if group is not None:
                self._group = group[1]
                continue
            line, is_row = self._row(text)
            if line is None:
                continue
            plain = plain_line(line)
            pieces = NUMBER_IN_LINE.split(plain)
            if len(pieces) < 2:
                continue
            form = self._form("\0".join(pieces[::2]), plain)
            if is_row or _is_pair(plain, form):
                self._add_pairs(n, form, pieces[1::2])
            elif form.is_header or _is_head(form):
                self._block = _LineBlock(n, _values(form, pieces[1::2]))
                self.blocks.append(self._block)

    def _row(self, text: str) -> tuple[str | None, bool]:
        """Return the line as ``name: value``, and whether it is a row of a table."""
        row = _TABLE_ROW.match(text)
        if row is None:
            self._group = "" if text.strip() and not text.strip().strip("-=+|#*_") else self._group
            return text, False
        key = row[1].strip()
        if row[1].endswith("/"):
            return None, False
        indented = text[text.index("|") + 1 :].startswith("   ")
        return f"{self._group}/{key}: {row[2]}" if self._group and indented else f"{key}: {row[2]}", True

    def _form(self, shape: str, line: str) -> LineForm:
        form = self.forms.get(shape)
        if form is None:
            if len(self.forms) > _MAX_SHAPES:
                self.forms.clear()
            form = self.forms[shape] = parse_line(line, _HINTS)
        return form

    def _add_pairs(self, n: int, form: LineForm, numbers: list[str]) -> None:
        values = _values(form, numbers)
        if not values:
            return
        block = self._block
        if block is None or any(key in block.values for key in values):
            block = self._block = _LineBlock(n, {}, 0)
            self.blocks.append(block)
        block.values |= values
        block.lines += 1
        self._latest = n, block, tuple(values)

    def drop_cut_number(self, raw: RawRecords, last_line: int) -> None:
        """Drop the value in the file's last line, which has no end: it may be the beginning of a number."""
        if self._latest is None or self._latest[0] != last_line:
            return
        _, block, keys = self._latest
        raw.notes.append(cut_note(", ".join(keys)))
        counters = {number.key for form in self.forms.values() for number in form.numbers if number.field in COUNTERS}
        if counters & set(keys):  # the values of the block belong to an unknown step
            self.blocks.remove(block)
        else:
            block.values |= dict.fromkeys(keys, math.nan)

    def records(self) -> list[_LineBlock]:
        """Return the blocks that are records: those of a kind that occurs more than once."""
        times: dict[str, int] = {}
        full = [block for block in self.blocks if block.lines > _MIN_PAIRS]
        for block in full:
            for key in block.values:
                times[key] = times.get(key, 0) + 1
        return [block for block in full if sum(times[key] > 1 for key in block.values) > _MIN_PAIRS]


def _is_pair(line: str, form: LineForm) -> bool:
    return bool(form.numbers) and _PAIR_LINE.match(line) is not None and not _COUNTER_IN_KEY.match(line)


def _is_head(form: LineForm) -> bool:
    """Return whether a line has a named counter and no measurement."""
    return any(number.field in ("step", "epoch") and number.is_named for number in form.numbers) and not form.is_record


def _values(form: LineForm, numbers: Sequence[str]) -> dict[str, float]:
    found = {}
    for number in form.numbers:
        found[number.key] = sum(float(to_floats([numbers[index]])[0]) * factor for index, factor in number.parts)
    return found


@dataclass(frozen=True, kw_only=True)
class Blocks(LogFormat):
    """Records of several lines, with one name and value on each."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines of the records; 0 if less than half of the lines belong to one."""
        reader = _BlockReader()
        reader.read(sample, 0)
        records = reader.records()
        lines = sum(block.lines for block in records)
        full = sum(1 for line in sample if re.search(r"\d", line))
        counted = any(_has_counter(reader, block) for block in records)
        return float(lines) if counted and len(records) > 1 and 2 * lines > full and _varies(reader, records) else 0.0

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file block by block."""
        raw, reader, offset = RawRecords(self.name), _BlockReader(), 0
        for block in log_file.blocks():
            lines = block.split("\n")
            raw.lines += sum(1 for line in lines if line and not line.isspace())
            reader.read(lines, offset)
            offset += len(lines)
        if not log_file.ends_with_newline:
            reader.drop_cut_number(raw, offset)
        for form in reader.forms.values():
            for number in form.numbers:
                raw.add_meaning(number.key, number.meaning, number.unit_known)
        records = reader.records()
        raw.used_lines = sum(block.lines for block in records)
        if records:
            raw.add_rows([{"_n": block.n, **block.values} for block in records])
        return raw


def _has_counter(reader: _BlockReader, block: _LineBlock) -> bool:
    counters = {
        number.key
        for form in reader.forms.values()
        for number in form.numbers
        if number.field in ("step", "epoch", "elapsed_s")
    }
    return any(key in counters for key in block.values)


def _varies(reader: _BlockReader, records: Sequence[_LineBlock]) -> bool:
    """Return whether a counter, or the time since the start, is not always the same: else they are settings."""
    counters = {
        number.key
        for form in reader.forms.values()
        for number in form.numbers
        if number.field in ("step", "epoch", "elapsed_s")
    }
    return any(len({block.values[key] for block in records if key in block.values}) > 1 for key in counters)


FORMAT: Final = Blocks(name="blocks", priority=5)
