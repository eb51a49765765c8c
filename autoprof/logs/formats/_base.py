"""The interface of a log format, and the records that it reads from one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..extras import import_pandas
from ..fields import FIELDS, Meaning, column_of_rate, meaning_of, normalize_key, scale_of
from ..log_file import LogFile
from ..values import Value


@dataclass(frozen=True, kw_only=True)
class FormatHints:
    """What the keys of one format mean, where it differs from the keys of all tools."""

    names: Mapping[str, str] = field(default_factory=dict)
    """By normalized key: the column, with its unit (``memory_mib``) or without; empty for a key that is no column."""
    units: Mapping[str, str] = field(default_factory=dict)
    """By column: the unit of a value that is printed without one."""
    averages: Mapping[str, str] = field(default_factory=dict)
    """By normalized key: why its value does not belong to a step. It is not read, and a note gives these words."""
    spoiled_by_validation: str | None = None
    """A column whose value includes the validation at the steps that validate."""

    def meaning(self, key: str) -> Meaning | None:
        """Return the meaning of a key in this format."""
        name = normalize_key(key)
        if name in self.averages:
            return None
        if name in self.names:
            column = self.names[name]
            return (meaning_of(column) or Meaning(column, 0)) if column else None
        return meaning_of(key)


@dataclass
class RawRecords:
    """The records of one file under the keys of the log: a column per key, values in the units of ``fields``.

    Columns with a leading underscore are not keys: ``_n`` (line number, required), ``_rank``, ``_time`` (seconds since
    1970), ``_validation`` (1 for a record of validation), ``_of`` (steps of an epoch).
    """

    format_name: str
    lines: int = 0
    """Lines of the file that are not empty."""
    used_lines: int = 0
    """Lines that gave a record."""
    meanings: dict[str, Meaning] = field(default_factory=dict)
    unknown_units: set[str] = field(default_factory=set)
    """Keys with a meaning whose unit the log does not give."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the user about assumptions and omissions."""
    spoiled_by_validation: str | None = None
    """A column whose value includes the validation at the steps that validate."""
    rows: list[dict[str, float]] = field(default_factory=list)

    def put(self, row: dict[str, float], key: str, value: Value, hints: FormatHints = FormatHints()) -> bool:
        """Add a value to a row in its column's unit, and record its meaning; return whether it was added.

        Not added are a second value of a key, a value that does not belong to a step, and one whose unit contradicts
        its key. The unit of the value overrules the one of the key, and that overrules the one of the format.
        """
        if key in row:
            return False
        meaning = hints.meaning(key)
        if meaning is None:
            words = hints.averages.get(normalize_key(key))
            if words is None:
                row[key] = value.number
                return True
            note = f"{key}: {words}, so it does not belong to a step and is not read"
            self.notes += [note] if note not in self.notes else []
            return False
        if meaning.field == "throughput" and value.unit is not None:
            column = column_of_rate(value.unit)
            meaning = meaning if column is None else Meaning(column, meaning.preference)
        kind = FIELDS[meaning.field].kind if meaning.field in FIELDS else "plain"
        own = scale_of(kind, value.unit)
        if value.unit is not None and own is None:
            return False
        given = scale_of(kind, meaning.unit or hints.units.get(meaning.field))
        scale = own if own is not None else given
        self.add_meaning(key, meaning, scale is not None or kind not in ("size", "percent"))
        row[key] = value.number * (1.0 if scale is None else scale)
        return True

    def add_meaning(self, key: str, meaning: Meaning | None, unit_known: bool = True) -> None:
        """Record the meaning of a key, and whether its unit is known. The first meaning of a key stays."""
        if meaning is not None:
            self.meanings.setdefault(key, meaning)
            if not unit_known:
                self.unknown_units.add(key)

    def to_frame(self) -> Any:
        """Return all records as one DataFrame in the order of the file."""
        frame = import_pandas().DataFrame(self.rows, dtype=float)
        return frame.sort_values("_n", kind="stable", ignore_index=True) if self.rows else frame


def read_lines(log_file: LogFile, raw: RawRecords, *, keeps_last: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty with their numbers, and count them.

    A last line without its end may be cut, within a number too: it is noted, and yielded only with ``keeps_last``.
    """
    before: tuple[int, str] | None = None
    for n, line in enumerate(log_file.lines(), 1):
        if not line or line.isspace():
            continue
        raw.lines += 1
        if before is not None:
            yield before
        before = n, line
    if before is not None and (keeps_last or log_file.ends_with_newline):
        yield before
    elif before is not None:
        raw.notes.append("the file ends within a line, which may be cut and is not read")


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """One format of training logs; a subclass implements ``score`` and ``read``."""

    name: str
    """The name in reports and in the documentation."""
    priority: int = 0
    """Decides between formats of equal score: the higher number wins."""

    def score(self, sample: Sequence[str]) -> float:
        """Return the number of lines of ``sample`` that are records of this format; 0 for a file of another format."""
        raise NotImplementedError

    def read(self, log_file: LogFile) -> RawRecords:
        """Read all records of the file."""
        raise NotImplementedError
