"""Files of named numbers without a known metric: any table, JSON lines, or lines of ``name=1 other=2``.

Detected only for a table with a counter in which no other format finds a record: a table without one may be a data
set. Chosen by name (``--reader numbers``) it reads the others, too. All columns keep the names that the file gives
them: none is taken for a loss or a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..fields import FIELDS, meaning_of
from ..line_forms import COUNTERS, LineForm, LineNumber, parse_line
from ..log_file import LogFile
from ._base import LogFormat, RawRecords
from ._json import JsonFormat
from ._text import TextFormat
from .csv import CsvFormat

_MIN_RECORDS: Final = 3
_MIN_SHARE: Final = 0.8
"""Of the lines that are not empty."""
_WEIGHT: Final = 1e-6
"""Below the score of every other format."""
_POSITIONS: Final = frozenset({"step", "epoch", "rank", "timestamp"})


class _ObjectsOfNumbers(JsonFormat):
    """JSON objects with a number."""

    def is_record(self, data: Mapping[str, Any]) -> bool:
        """Return whether an object has a number."""
        return any(isinstance(value, (int, float)) for _, value in self.values(data))

    def has_counter(self, data: Mapping[str, Any]) -> bool:
        """Return True: the records are numbered."""
        return True


class _LinesOfNumbers(TextFormat):
    """Lines with a number behind ``name=`` or ``name:``."""

    def form(self, line: str) -> LineForm | None:
        """Return the form of a line; None if it names no number."""
        form = parse_line(line, self.hints)
        is_record = any(number.is_named and number.field not in _POSITIONS for number in form.numbers)
        if not is_record or form.is_validation:
            return None
        return replace(form, numbers=tuple(map(_as_unknown, form.numbers)))

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines whose form occurs at least three times."""
        count: dict[LineForm, int] = {}
        for form in filter(None, map(self.form, sample)):
            count[form] = count.get(form, 0) + 1
        return float(sum(times for times in count.values() if times >= _MIN_RECORDS))


def _as_unknown(number: LineNumber) -> LineNumber:
    """Return a number that is not a position under a name that is not of a known column."""
    if number.field in _POSITIONS:
        return number
    return replace(number, meaning=None, key=f"{number.key} (logged)" if number.key in FIELDS else number.key)


_TABLE: Final = CsvFormat(name="numbers", needs_metric=False)
_KINDS: Final[tuple[LogFormat, ...]] = (
    _ObjectsOfNumbers(name="numbers"),
    _TABLE,
    _LinesOfNumbers(name="numbers", record=r"[:=]\s*\S*\d"),
)


@dataclass(frozen=True, kw_only=True)
class NumbersFormat(LogFormat):
    """Records of numbers whose names are not known."""

    def score(self, sample: Sequence[str]) -> float:
        """Return a small score for a table with a counter in which nearly all lines are records."""
        header = _TABLE.header(sample)
        meanings = [meaning_of(name) for name in (header or ())]
        is_counted = any(meaning is not None and meaning.field in COUNTERS for meaning in meanings)
        return _WEIGHT * _share(_TABLE, sample) if is_counted else 0.0

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file by its kind; only the meanings of counters are used."""
        sample = log_file.sample()
        shares = [_share(kind, sample) for kind in _KINDS]
        raw = _KINDS[shares.index(max(shares))].read(log_file)
        raw.meanings = {key: meaning for key, meaning in raw.meanings.items() if meaning.field in _POSITIONS}
        raw.unknown_units.clear()
        return raw


def _share(kind: LogFormat, sample: Sequence[str]) -> float:
    """Return the share of records among the lines; 0 if the file is not of this kind."""
    lines = sum(1 for line in sample if line.strip())
    count = kind.score(sample)
    return count / lines if count >= max(_MIN_RECORDS, _MIN_SHARE * (lines - 1)) else 0.0


FORMAT: Final = NumbersFormat(name="numbers", priority=-30)
