"""Values as people write them: ``"1.234"``, ``"12.3k tok/s"``, ``"1,024"``, ``"0:32:48"``, ``"97 %"``."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timezone
from typing import Final, NamedTuple

NUMBER: Final = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    r"|[-+]?(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?|INF)"
)
"""A number in a text, in the common part of Python's and DuckDB's (RE2) expressions. ``1.#INF`` is not one."""

_VALUE: Final = re.compile(
    rf"^\s*(?:tensor\(|np\.\w+\(|[\[(\"'~≈$])*\s*(?P<number>{NUMBER})\s*(?P<unit>[%A-Za-zµμ][\w/%µμ. ]*)?"
)
_CLOCK: Final = re.compile(
    r"^\s*(?:(?P<d>\d+)\s*days?,?\s*)?(?P<h>\d+):(?P<m>\d{1,2})(?::(?P<s>\d{1,2}(?:\.\d+)?))?\s*$"
)
_DATE: Final = re.compile(r"^\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


class Value(NamedTuple):
    """A number and the unit written behind it, if one is."""

    number: float
    unit: str | None = None


def parse_value(text: str) -> Value | None:
    """Read a value with its unit; a clock (``9 days, 21:39:23``) and a date become seconds. None for no value."""
    clock = _CLOCK.match(text)
    if clock is not None:
        return Value(_clock_s(clock), "s")
    if _DATE.match(text):
        return _date(text)
    found = _VALUE.match(text)
    if found is None:
        return None
    return Value(to_float(found["number"]), (found["unit"] or "").strip() or None)


def to_float(text: str) -> float:
    """Read a number that ``NUMBER`` matched."""
    return float(text.replace(",", "").rstrip("."))


def parse_list(text: str) -> list[float] | None:
    """Read a list, or a mapping's values in the order of its keys: ``[97, 95]``, ``{"0": "97 %"}``, ``97, 95``."""
    try:
        data = json.loads(text)
    except ValueError:
        data = [part for part in re.split(r"[,;\s]+", text.strip("[]() ")) if part and part != "%"]
    if isinstance(data, dict):
        data = list(data.values())
    if not isinstance(data, list):
        return None
    values = []
    for item in data:
        value = parse_value(str(item))
        values.append(math.nan if value is None else value.number)
    return values if any(value == value for value in values) else None


def _clock_s(clock: re.Match[str]) -> float:
    days, first, second, third = (float(clock[name] or 0) for name in "dhms")
    if clock["s"] is None:  # tqdm writes 01:48 for a minute and 48 seconds
        return days * 86400 + first * 60 + second
    return days * 86400 + first * 3600 + second * 60 + third


def _date(text: str) -> Value | None:
    try:
        moment = datetime.fromisoformat(text.strip().replace(",", ".").replace("Z", "+00:00"))
    except ValueError:
        return None
    return Value((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp(), "s")
