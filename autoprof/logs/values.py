"""Numbers as people write them: ``"1.234"``, ``"12.3k tok/s"``, ``"1,024"``, ``"0:32:48"``, ``"97 %"``."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

import numpy as np

from .extras import import_pandas
from .fields import scale_of

NUMBER: Final = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    r"|[-+]?(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?|INF)"
)
"""A number in a text, as a regular expression. ``1.#INF`` is no number."""

_VALUE: Final = re.compile(
    rf"^\s*(?:tensor\(|np\.\w+\(|[\[(\"'~≈$])*\s*(?P<number>{NUMBER})\s*(?P<unit>[%A-Za-zµμ][\w/%µμ. ]*)?"
)
_CLOCK: Final = re.compile(
    r"^\s*(?:(?P<d>\d+)\s*days?,?\s*)?(?P<h>\d+):(?P<m>\d{1,2})(?::(?P<s>\d{1,2}(?:\.\d+)?))?\s*$"
)
_DURATION: Final = re.compile(
    r"^\s*(?=\d+\s?[dhm])(?:(?P<d>\d+)\s?d(?:ays?)?,?\s*)?(?:(?P<h>\d+)\s?h(?:ours?)?,?\s*)?"
    r"(?:(?P<m>\d+)\s?m(?:in)?,?\s*)?(?:(?P<s>\d+(?:\.\d+)?)\s?s(?:ec)?)\s*$"
)
"""``9h 30m 16s``. A duration of minutes alone is a number with a unit."""
_DATE: Final = re.compile(r"^\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


class Value(NamedTuple):
    """A number and the unit written after it, if any."""

    number: float
    unit: str | None = None


def parse_value(text: str) -> Value | None:
    """Read a number with its unit; None for other text.

    A duration (``9 days, 21:39:23``) becomes seconds, a date becomes seconds since 1970.
    """
    clock = _CLOCK.match(text)
    if clock is not None:
        return Value(_clock_s(clock), "s")
    duration = _DURATION.match(text)
    if duration is not None:
        days, hours, minutes, seconds = (float(duration[name] or 0) for name in "dhms")
        return Value(((days * 24 + hours) * 60 + minutes) * 60 + seconds, "s")
    if _DATE.match(text):
        return _parse_date(text)
    found = _VALUE.match(text)
    if found is None:
        return None
    return Value(to_float(found["number"]), (found["unit"] or "").strip() or None)


def parse_texts(texts: Any, kind: str, scale: float | None, *, allow_units: bool = True) -> tuple[Any, list[str]]:
    """Read a column of texts as numbers in the unit of ``kind``; return them and the distinct units in the texts.

    A number without a unit of its own is multiplied by ``scale``. A text that is no number becomes NaN, and without
    ``allow_units`` so does a number with a unit. Each distinct text is parsed once.
    """
    units: dict[str, None] = {}

    def parse(text: str) -> float:
        value = parse_value(text)
        if value is None or (value.unit is not None and not allow_units):
            return math.nan
        if value.unit is not None:
            units[value.unit] = None
        unit_scale = scale_of(kind, value.unit)
        return value.number * (unit_scale if unit_scale is not None else scale if scale is not None else 1.0)

    codes, distinct = import_pandas().factorize(np.asarray(texts, dtype=object))
    values = [parse(str(text)) for text in distinct]
    return np.asarray([*values, np.nan], dtype="float64")[codes], list(units)  # pandas' code of a missing text is -1


def to_float(text: str) -> float:
    """Convert a text that ``NUMBER`` matches."""
    return float(text.replace(",", "").rstrip("."))


def number_of(value: float) -> float:
    """Convert a number of JSON; one beyond the range of floats is infinite, as if it had been written as a float."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def parse_list(text: str) -> list[float] | None:
    """Read a list, or the values of a mapping in key order: ``[97, 95]``, ``{"0": "97 %"}``, ``97, 95``."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
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
    if clock["s"] is None:  # tqdm writes 01:48 for 1 minute and 48 seconds
        return days * 86400 + first * 60 + second
    return days * 86400 + first * 3600 + second * 60 + third


def _parse_date(text: str) -> Value | None:
    try:
        moment = datetime.fromisoformat(text.strip().replace(",", ".").replace("Z", "+00:00"))
    except ValueError:
        return None
    return Value((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp(), "s")
