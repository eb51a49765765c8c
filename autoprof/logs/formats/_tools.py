"""The formats of other tools, from the table ``tools.yaml``."""

from __future__ import annotations

from typing import Any, Final

from ..fields import TABLE
from ._base import FormatHints, LogFormat
from ._json import JsonFormat
from ._text import TextFormat


def _make_format(name: str, entry: dict[str, Any]) -> LogFormat:
    """Return the format of one entry: of JSON objects with its ``keys``, or of lines that its ``line`` matches."""
    hints = FormatHints(
        rename=entry.get("names", {}),
        units=entry.get("units", {}),
        averages=entry.get("averages", {}),
        spoiled_by_validation=entry.get("spoiled_by_validation"),
    )
    if "keys" in entry:
        return JsonFormat(
            name=name,
            priority=entry.get("priority", 30),
            own_keys=frozenset(entry["keys"].split()),
            ignored_keys=frozenset(entry.get("ignored", "").split()),
            hints=hints,
        )
    return TextFormat(
        name=name,
        record=tuple(entry["lines"]),
        unnamed=tuple((pattern, column) for column, pattern in entry.get("values", {}).items()),
        spaced=entry.get("spaced", False),
        hints=hints,
        weight=entry.get("weight", 1.3),
    )


TOOL_FORMATS: Final = [_make_format(name, entry) for name, entry in TABLE["tools"].items()]
