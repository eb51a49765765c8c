"""The records that a format reads from one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .fields import FIELDS, Meaning, column_of_rate, meaning_of, normalize_key, scale_of
from .values import Value


@dataclass
class Records:
    """The records of one file under the keys of the log: a column per key, values in the units of ``fields``.

    Columns with a leading underscore are not keys: ``_rank``, ``_time`` (seconds since 1970), ``_validation`` (1 for a
    record of validation), ``_of`` (steps of an epoch).
    """

    reader: str
    """The name of the format."""
    tool: Mapping[str, Any] = field(default_factory=dict)
    """The entry of the tool in ``tools.yaml``."""
    weight: float = 1.0
    """How much a record counts when the format of a file is chosen."""
    rows: list[dict[str, float]] = field(default_factory=list)
    used_lines: int = 0
    """Lines that gave a record."""
    meanings: dict[str, Meaning] = field(default_factory=dict)
    unknown_units: set[str] = field(default_factory=set)
    """Keys with a meaning whose unit the log does not give."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the user about assumptions and omissions."""

    def meaning(self, key: str) -> Meaning | None:
        """Return the meaning of a key in this format."""
        name = normalize_key(key)
        if name in self.tool.get("averages", {}):
            return None
        column = self.tool.get("names", {}).get(name, key)
        found = meaning_of(column) if column else None
        return Meaning(column, 0) if found is None and column and column != key else found

    def put(self, row: dict[str, float], key: str, value: Value) -> None:
        """Add a value to a row in its column's unit, and record its meaning.

        Not added are a second value of a key, a value that does not belong to a step, and one whose unit contradicts
        its key. The unit of the value overrules the one of the key, and that overrules the one of the tool.
        """
        if key in row:
            return
        meaning = self.meaning(key)
        if meaning is None:
            words = self.tool.get("averages", {}).get(normalize_key(key))
            if words is None:
                row[key] = value.number
            else:
                note = f"{key}: {words}, so it does not belong to a step and is not read"
                self.notes += [note] if note not in self.notes else []
            return
        if meaning.field == "throughput" and (column := column_of_rate(value.unit)) is not None:
            meaning = Meaning(column, meaning.preference)
        kind = FIELDS[meaning.field].kind if meaning.field in FIELDS else "plain"
        scale = scale_of(kind, value.unit)
        if value.unit is not None and scale is None:
            return
        if scale is None:
            scale = scale_of(kind, meaning.unit or self.tool.get("units", {}).get(meaning.field))
        if scale is None and kind in ("size", "percent"):
            self.unknown_units.add(key)
        self.add_meaning(key, meaning)
        row[key] = value.number * (1.0 if scale is None else scale)

    def add_meaning(self, key: str, meaning: Meaning | None) -> None:
        """Record the meaning of a key. The first one stays."""
        if meaning is not None:
            self.meanings.setdefault(key, meaning)
