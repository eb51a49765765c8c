"""Files that are one JSON document: the Trainer's ``trainer_state.json``, or a list of records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..log_file import LogFile
from ._base import LogFormat, RawRecords
from .jsonl import JSONL


@dataclass(frozen=True, kw_only=True)
class JsonDocument(LogFormat):
    """A JSON document that holds the records."""

    def score(self, sample: Sequence[str]) -> float:
        """Return a high score if a bracket opens in the first line and is closed in a later one."""
        # The score of a document: above that of any format that counts the lines of a sample.
        certain = 1e6
        first = next((line.strip() for line in sample if line.strip()), "").lstrip("\ufeff")
        if not first.startswith(("{", "[")):
            return 0.0
        lines = sum(bool(line.strip()) for line in sample)
        try:
            data = json.loads(first)
        except RecursionError:
            return 0.0
        except ValueError:
            opens = first in ("{", "[") or first.startswith(('{"', "[{"))
            inside = sum(line.startswith((" ", "\t", "}", "]", "{")) for line in sample)
            return certain if opens and inside >= 0.8 * lines - 1 else 0.0
        return certain if lines == 1 and len(_find_records(data)) > 1 else 0.0

    def read(self, log_file: LogFile) -> RawRecords:
        """Parse the whole document, then read its records as JSON lines."""
        text = log_file.text()
        raw = RawRecords(self.name)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return raw  # an incomplete document
        records = _find_records(data)
        if isinstance(data, dict) and "log_history" in data:
            raw.format_name = "hf trainer_state"
        if len(records) == 1 and not JSONL.has_counter(records[0]):
            return raw  # a configuration
        for n, data in enumerate(records, 1):
            raw.lines += 1
            raw.used_lines += JSONL.add_object(raw, data, n)
        return raw


def _find_records(data: Any) -> list[dict[str, Any]]:
    """Return the longest list of objects in a document, or the document."""
    if isinstance(data, list):
        return [item for item in data if isinstance(item, dict)]
    if not isinstance(data, dict):
        return []
    inner = [_find_records(value) for value in data.values() if isinstance(value, (list, dict))]
    longest = max(inner, key=len, default=[])
    return longest or [data]
