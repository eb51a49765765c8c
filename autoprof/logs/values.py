"""Numbers as people write them: ``"1.234"``, ``"12.3k tok/s"``, ``"1,024"``, ``"0:32:48"``, ``"97 %"``."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final, NamedTuple

NUMBER: Final = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    r"|[-+]?(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?|INF)"
)
"""A number in a text, as a regular expression."""
_VALUE: Final = re.compile(rf"\s*[\[(\"'~]*\s*({NUMBER})\s*([%A-Za-zµμ][\w/%µμ. ]*)?[\])\"']*\s*")


class Value(NamedTuple):
    """A number and the unit written after it, if any."""

    number: float
    unit: str | None = None


def parse_value(text: str) -> Value | None:
    """Read a number with its unit; None for other text.

    A duration (``9 days, 21:39:23``) becomes seconds, a date becomes seconds since 1970.
    """
    try:
        return Value(float(text))
    except ValueError:
        pass
    clock = re.fullmatch(r"\s*(?:(\d+)\s*days?,?\s*)?(\d+):(\d{1,2})(?::(\d{1,2}(?:\.\d+)?))?\s*", text)
    if clock is not None:
        days, first, second, third = (float(part or 0) for part in clock.groups())
        if clock[4] is None:  # tqdm writes 01:48 for 1 minute and 48 seconds
            first, second, third = 0.0, first, second
        return Value(days * 86400 + first * 3600 + second * 60 + third, "s")
    if re.match(r"\s*\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d", text):
        return _parse_date(text)
    found = _VALUE.fullmatch(text)
    return None if found is None else Value(to_float(found[1]), (found[2] or "").strip() or None)


def to_float(text: str) -> float:
    """Convert a text that ``NUMBER`` matches."""
    return float(text.replace(",", "").rstrip("."))


def _parse_date(text: str) -> Value | None:
    try:
        moment = datetime.fromisoformat(text.strip().replace("/", "-").replace(",", ".").replace("Z", "+00:00"))
    except ValueError:
        return None
    return Value((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp(), "s")
