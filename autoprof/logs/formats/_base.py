"""The interface of a log format, and the records that it reads from one file."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..extras import import_pandas
from ..fields import Meaning
from ..line_forms import FormatHints
from ..log_file import LogFile

Floats = np.ndarray[Any, np.dtype[np.float64]]
_NO_KIND: Final = np.zeros(1)


def append_part(parts: list[dict[str, Floats]], part: dict[str, Floats]) -> None:
    """Append the records of a part to the part of the same kind with the same columns, or as a part of its own.

    Its arrays grow in place, so no one else may hold them. Joining them at the end would need the memory twice.
    """
    kind = part.get("_kind", _NO_KIND)[0]
    before = next((one for one in parts if one.keys() == part.keys() and one.get("_kind", _NO_KIND)[0] == kind), None)
    if before is None:
        parts.append(part)
        return
    for key, values in part.items():
        array = before[key]
        count = len(array)
        array.resize(count + len(values), refcheck=False)
        array[count:] = values


def cut_note(key: str) -> str:
    """Return the note about a value that is not used because the file ends in it."""
    return f"the file ends within a line, so its last number ({key}) may be cut and is not used"


@dataclass
class RawRecords:
    """The records of one file under the keys of the log: a column per key, values in the units of ``fields``.

    Columns with a leading underscore are not keys: ``_n`` (line number, required), ``_kind`` (records of one structure
    have one number), ``_rank``, ``_time`` (seconds since 1970), ``_validation`` (1 for a record of validation),
    ``_of`` (steps of an epoch), ``_position`` and ``_epoch`` (counters without a name), ``_section`` (1 below a line
    that begins a validation).
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
    has_bars: bool = False
    """Whether records are progress bars, which show the last values again."""
    spoiled_by_validation: set[str] = field(default_factory=set)
    """Keys of times that include the validation in the steps that validate."""
    _parts: list[dict[str, Floats]] = field(default_factory=list)
    _kinds: dict[Hashable, int] = field(default_factory=dict)
    _keys: dict[str, None] = field(default_factory=dict)

    def add(
        self, columns: Mapping[str, Any], offset: int = 0, kind: Hashable = None, *, is_owned: bool = False
    ) -> None:
        """Append records of one ``kind``, a column per key; ``offset`` is the number of lines before their block.

        ``is_owned`` gives the arrays away: they are not copied, and may change.
        """
        make = np.asarray if is_owned else np.array
        part = {key: make(values, dtype=np.float64) for key, values in columns.items()}
        if not len(part["_n"]):
            return
        if offset:
            part["_n"] = part["_n"] + offset
        self._keys |= dict.fromkeys(part)
        number = self._kinds.setdefault(kind, len(self._kinds))
        part["_kind"] = np.full(len(part["_n"]), number, dtype=np.float64)
        append_part(self._parts, part)

    def add_meaning(self, key: str, meaning: Meaning | None, unit_known: bool = True) -> None:
        """Record the meaning of a key, and whether its unit is known. The first meaning of a key stays."""
        if meaning is not None:
            self.meanings.setdefault(key, meaning)
            if not unit_known:
                self.unknown_units.add(key)

    def drop(self, key: str) -> None:
        """Remove a key from all records."""
        self._keys.pop(key, None)
        self.meanings.pop(key, None)
        for part in self._parts:
            part.pop(key, None)

    def add_rows(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Append records given one by one; a key that a record lacks is NaN."""
        keys = dict.fromkeys(key for row in rows for key in row)
        self.add({key: [row.get(key, np.nan) for row in rows] for key in keys})

    def take(self, other: RawRecords) -> None:
        """Append the records and the meanings of ``other``."""
        base = len(self._kinds)
        self._kinds |= {(base, kind): base + number for kind, number in other._kinds.items()}
        for part in other._parts:
            part["_kind"] += base
        self._parts += other._parts
        self._keys |= other._keys
        for key, meaning in other.meanings.items():
            self.meanings.setdefault(key, meaning)
        self.unknown_units |= other.unknown_units

    @property
    def keys(self) -> list[str]:
        """All keys of the records."""
        return list(self._keys)

    @property
    def has_records(self) -> bool:
        """Whether any record was read."""
        return bool(self._parts)

    def to_frame(self) -> Any:
        """Return all records as one DataFrame in the order of the file, and forget them: they are as large."""
        pd = import_pandas()
        if not self._parts:
            return pd.DataFrame({"_n": []})
        parts, self._parts = self._parts, []
        if len(parts) == 1 and (np.diff(parts[0]["_n"]) >= 0).all():
            return pd.DataFrame(parts[0], copy=False)
        count = sum(len(part["_n"]) for part in parts)
        keys = list(dict.fromkeys(key for part in parts for key in part))
        columns: dict[str, Any] = {}
        order = None
        for key in ["_n", *(key for key in keys if key != "_n")]:
            values = np.full(count, np.nan)
            at = 0
            for part in parts:
                found = part.pop(key, None)
                stop = at + (len(part["_n"]) if found is None else len(found))
                if found is not None:
                    values[at:stop] = found
                    if key == "_n":
                        part["_n"] = found
                at = stop
            if key == "_n" and (np.diff(values) < 0).any():
                order = np.argsort(values, kind="stable")
            columns[key] = values if order is None else values[order]
        return pd.DataFrame(columns, copy=False)

    @property
    def skipped(self) -> int:
        """The number of lines that are not empty and gave no record."""
        return max(self.lines - self.used_lines, 0)


def note_qualified(raw: RawRecords, hints: FormatHints) -> None:
    """Add a note for each value that the format knows to be none of a step."""
    for key, words in hints.qualifiers.items():
        if hints.qualify(key) in raw.keys:
            raw.notes.append(f"{key}: {words}, so it is no value of a step")


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """One format of training logs; a subclass implements ``score`` and ``read``."""

    name: str
    """The name in ``load_logs(reader=)``, in reports and in the documentation."""
    priority: int = 0
    """Decides between formats of equal score: the higher number wins."""

    def score(self, sample: Sequence[str]) -> float:
        """Return the number of lines of ``sample`` that are records of this format; 0 for a file of another format."""
        raise NotImplementedError

    def read(self, log_file: LogFile) -> RawRecords:
        """Read all records of the file."""
        raise NotImplementedError
