"""Files that are one JSON document: ``trainer_state.json`` of the Trainer, a list of records, a dict of lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..engine import Engine
from ..source import Source
from .base import Raw
from .objects import JsonFormat

_AT_ONCE: Final = 50_000
_OBJECTS: Final = JsonFormat("json")


@dataclass(frozen=True)
class Document:
    """A JSON document that holds the records."""

    name: str = "json document"

    def score(self, sample: Sequence[str]) -> float:
        """Say that it is one where a bracket opens in the first line and is not closed there."""
        first = next((line.strip() for line in sample if line.strip()), "").lstrip("\ufeff")
        if not first.startswith(("{", "[")):
            return 0.0
        try:
            data = json.loads(first)
        except ValueError:
            opens = first in ("{", "[") or first.startswith(('{"', "[{"))
            inside = sum(line.startswith((" ", "\t", "}", "]", "{")) for line in sample)
            return 1e6 if opens and inside >= 0.8 * sum(bool(line.strip()) for line in sample) - 1 else 0.0
        records = _records(data)
        return 1e6 if sum(bool(line.strip()) for line in sample) == 1 and len(records) > 1 else 0.0

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the document whole, and its records as lines."""
        text = source.text()
        raw = Raw(self.name)
        try:
            data = json.loads(text)
        except ValueError:
            records, cut = _salvage(text)
            if cut is not None:
                raw.notes.append(f"the document is not whole: {len(records)} records before character {cut} are read")
        else:
            records = _records(data)
            if isinstance(data, dict) and "log_history" in data:
                raw.reader = "hf trainer_state"
        for at in range(0, len(records), _AT_ONCE):
            part = records[at : at + _AT_ONCE]
            raw.lines += engine.load("\n".join(json.dumps(record, ensure_ascii=False) for record in part))
            _OBJECTS.add(raw, engine, at)
        return raw


def _records(data: Any) -> list[dict[str, Any]]:
    """Find the records in a document: the longest list of objects in it, or columns of one length."""
    if isinstance(data, list):
        return [item for item in data if isinstance(item, dict)]
    if not isinstance(data, dict):
        return []
    inner = [_records(value) for value in data.values() if isinstance(value, (list, dict))]
    best = max(inner, key=len, default=[])
    columns = {
        key: value
        for key, value in data.items()
        if isinstance(value, list) and value and not isinstance(value[0], (dict, list))
    }
    length = max(map(len, columns.values()), default=0)
    if length > max(len(best), 1):
        same = {key: value for key, value in columns.items() if len(value) == length}
        return [dict(zip(same, row, strict=True)) for row in zip(*same.values(), strict=True)]
    return best or [data]


def _salvage(text: str) -> tuple[list[dict[str, Any]], int | None]:
    """Read the objects of a document that was cut off, or of several; return where the rest begins, None for none."""
    decoder = json.JSONDecoder()
    records: list[dict[str, Any]] = []
    at = text.find("{", 0 if text.lstrip().startswith("{") and "[" not in text[:64] else max(text.find("["), 0))
    last = at
    while at >= 0:
        try:
            data, end = decoder.raw_decode(text, at)
        except ValueError:
            at = text.find("{", at + 1)
            continue
        if isinstance(data, dict):
            records.append(data)
        last, at = end, text.find("{", end)
    return records, last if text[last:].strip() else None
