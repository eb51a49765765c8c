"""Names and numbers in a line of text: ``iter 10: loss 2.31, time 12.1ms``, ``lm loss: 1.0E+01 |``, ``[1][50/100]``.

Lines that differ only in their numbers have one form. A form is parsed once, in Python; the database then reads all its
lines with one regular expression per number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from .fields import (
    FIELDS,
    METRICS,
    Meaning,
    column_of_rate,
    is_loss,
    is_unit_known,
    meaning_of,
    normalize_key,
    scale_of,
)
from .values import NUMBER

_WORD: Final = r"[^\W\d][\w%]*(?:[./@-][^\W\d]\w*)*"
_UNIT: Final = (
    r"\s?[kKMG]?\s?(?:tok(?:en)?s?|samples?|images?|imgs?|examples?)/s(?:ec)?(?:/\w+)?(?![\w:=])|[%A-Za-zµμ][A-Za-z%/]*|\s(?:%|[mun]?s|secs?|seconds?|min|[KMGT]i?B|bytes|k?tok(?:en)?s?/s(?:ec)?(?:/\w+)?|"
    r"(?:samples?|images?|imgs?|examples?|iters?|it|steps?)/s(?:ec)?|s/it(?:er)?|T?FLOP/?[sS])(?![\w:=])"
)
_PAIR: Final = re.compile(
    rf"(?<![\w./\\])(?P<key>{_WORD}(?:\s\(?{_WORD}\)?){{0,6}}?(?:\s?\([A-Za-z%/]+\))?)"
    rf"(?P<sep>[\"']?\s*[:=]\s*|\s+)(?P<open>[\[(\"']*\s*(?:tensor\()?)"
    rf"(?P<number>(?:{NUMBER})(?![\d.]|:\w|-\d\d-))(?P<unit>{_UNIT})?(?P<total>\s*/\s*\d+)?"
)
_UNNAMED_RATE: Final = re.compile(
    r"(?<![\w.:=])(?P<number>\d[\d,]*\.?\d*)\s?(?P<unit>"
    r"k?(?:tok(?:en)?s?|samples?|images?|imgs?|examples?|iters?|it|steps?)/s(?:ec)?|s/it(?:er)?)(?!\w)"
)
_POSITION: Final = re.compile(r"(?P<open>\[|\|)\s*(?P<number>\d+)\s*/\s*(?P<total>\d+)\s*(?=[\[\](|])")
RANK_PATTERN: Final = (
    r"\b(?:[Rr]ank|RANK|default|[Gg]lobal [Rr]ank|[Ll]ocal [Rr]ank|local_rank|LOCAL_RANK)[\s_:=]?\s?(\d+)\b"
)
TIME_PATTERN: Final = r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)"
_TIME: Final = re.compile(TIME_PATTERN)
VALIDATION: Final = re.compile(
    r"(?i)^\W*(?:\S+ ){0,12}?\W*(?:epoch\((?:val|test)\)|validation|validating|sanity|eval(?:uation)?|evaluating|"
    r"valid|val|testing|test)\b(?![_/. -]?(?:loss|[a-z]*[:=]))"
)


def rank_sql(text: str = "line") -> str:
    """Return the SQL expression for the rank in a text column."""
    return f"try_cast(regexp_extract({text}, '{RANK_PATTERN}', 1) as double)"


def time_sql(text: str = "line") -> str:
    """Return the SQL expression for the time in a text column, in seconds since 1970."""
    moment = f"replace(replace(regexp_extract({text}, '{TIME_PATTERN}', 1), '/', '-'), ',', '.')"
    return f"epoch(try_cast({moment} as timestamp))"


@dataclass(frozen=True, slots=True)
class LineNumber:
    """One number of a form."""

    key: str
    meaning: Meaning | None
    pattern: str
    """The regular expression whose group is the number; valid in RE2."""
    scale: float | None = None
    """The factor to the column's unit; None if the log does not give the unit."""
    has_commas: bool = False
    preceding: str = ""
    """The pattern of the number before it. Patterns are searched in line order, so ``loss`` skips ``val loss``."""
    standalone: bool = False
    """Searched separately, without regard to the order."""


@dataclass(frozen=True, slots=True)
class LineForm:
    """The common structure of lines that differ only in their numbers."""

    numbers: tuple[LineNumber, ...]
    has_rank: bool = False
    has_time: bool = False
    is_validation: bool = False

    @property
    def fields(self) -> frozenset[str]:
        """The columns of the numbers."""
        return frozenset(number.meaning.field for number in self.numbers if number.meaning is not None)

    @property
    def is_record(self) -> bool:
        """Whether the lines have a position in the run and a measurement."""
        return bool(self.fields & {"step", "epoch"}) and any(
            (number.meaning is not None and number.meaning.field in METRICS) or is_loss(number.key)
            for number in self.numbers
            if not number.standalone  # a progress bar over files has a rate and no measurement of training
        )


@dataclass(frozen=True, slots=True)
class FormatHints:
    """The meaning of keys in one format, where it differs from ``fields.FIELDS``."""

    rename: Mapping[str, str] = field(default_factory=dict)
    """Columns by normalized key."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units by column, for values and keys without a unit."""
    ignore: frozenset[str] = frozenset(
        {"eta", "eta_seconds", "remaining_time", "info", "warning", "error", "pid", "version", "v_num"}
    )
    """Normalized keys that are skipped."""

    def meaning(self, key: str) -> Meaning | None:
        """Return the meaning of a key in this format; None for an unknown key."""
        name = normalize_key(key)
        if name in self.rename:
            return Meaning(self.rename[name], 0)
        return meaning_of(key)


def parse_line(line: str, hints: FormatHints) -> LineForm:
    """Return the form of a line, with all its numbers."""
    found: dict[str, LineNumber] = {}
    starts: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for pair in _PAIR.finditer(line):
        number = _number_of_pair(line, pair, hints)
        if number is not None and number.key not in found:
            found[number.key] = number
            starts[number.key] = pair.start()
            spans.append(pair.span())
    fields = {number.meaning.field for number in found.values() if number.meaning is not None}
    for rate in _UNNAMED_RATE.finditer(line):
        unit = rate["unit"]
        column = column_of_rate(unit) or "throughput"
        if column not in fields and not any(start <= rate.start() < end for start, end in spans):
            pattern = rf"({NUMBER})\s?{re.escape(unit)}"
            scale = scale_of(FIELDS[column].kind, unit) or 1.0
            found[unit] = LineNumber(normalize_key(unit), Meaning(column, 50), pattern, scale, standalone=True)
    found |= _position_in_epoch(line, has_step="step" in fields)
    in_order = sorted((number for number in found.values() if not number.standalone), key=lambda one: starts[one.key])
    standalone = [number for number in found.values() if number.standalone]
    return LineForm(
        (*_link(in_order), *standalone),
        re.search(RANK_PATTERN, line) is not None,
        _TIME.search(line) is not None,
        VALIDATION.search(line) is not None,
    )


def _position_in_epoch(line: str, *, has_step: bool) -> dict[str, LineNumber]:
    """Return the numbers of ``[50/100]``: the step, unless the line has one with a name, and the steps of an epoch."""
    position = _POSITION.search(line)
    if position is None:
        return {}
    start = r"\[" if position["open"] == "[" else r"\|"
    step = rf"{start}\s*(\d+)\s*/\s*\d+\s*[\[\](|]"
    total = rf"{start}\s*\d+\s*/\s*(\d+)\s*[\[\](|]"
    found = {} if has_step else {"_position": LineNumber("_position", Meaning("step", 90), step, 1.0, standalone=True)}
    return found | {"_of": LineNumber("_of", None, total, 1.0, standalone=True)}


def _link(numbers: list[LineNumber]) -> list[LineNumber]:
    """Set the ``preceding`` pattern of every number."""
    pairs = zip([None, *numbers], numbers, strict=False)
    return [
        replace(number, preceding="" if last is None else last.pattern.replace(f"({NUMBER})", f"(?:{NUMBER})"))
        for last, number in pairs
    ]


def _number_of_pair(line: str, pair: re.Match[str], hints: FormatHints) -> LineNumber | None:
    key, unit = pair["key"], (pair["unit"] or "").strip() or None
    name = normalize_key(key)
    if name in hints.ignore or normalize_key(key.split()[-1]) in hints.ignore:
        return None
    meaning = hints.meaning(key)
    column = column_of_rate(unit)
    if (
        column is not None
        and column != (meaning.field if meaning else None)
        and (meaning is None or meaning.field in ("throughput", "tflops"))
    ):
        meaning = Meaning(column, 20 if meaning is None else meaning.preference)
    if meaning is None and not pair["sep"].strip():
        return None  # an unknown word before a number needs a colon or an equals sign to be its name
    if meaning is not None and meaning.field == "rank":
        return None  # read by RANK_PATTERN
    return LineNumber(name, meaning, _pattern_of_pair(line, pair), _scale(meaning, unit, hints), "," in pair["number"])


def _scale(meaning: Meaning | None, unit: str | None, hints: FormatHints) -> float | None:
    """Return the factor to the column's unit; None if the column needs a unit and the log gives none."""
    if meaning is None:
        return 1.0
    kind = FIELDS[meaning.field].kind
    for candidate in (unit, meaning.unit, hints.units.get(meaning.field)):
        scale = scale_of(kind, candidate)
        if scale is not None:
            return scale
    return 1.0 if is_unit_known(kind, None) else None


def _pattern_of_pair(line: str, pair: re.Match[str]) -> str:
    """Return an RE2 expression that finds this number in every line of the form."""
    before = line[: pair.start()].rstrip()
    if not before:
        guard = r"^\s*"
    elif before[-1].isalnum():
        guard = r"\s+"
    else:
        guard = re.escape(before[-1]) + r"\s*"
    words = r"\s+".join(re.escape(word) for word in pair["key"].split())
    sign = rf"[\"']?\s*{pair['sep'].strip(chr(34) + chr(39) + ' ')[:1]}\s*" if pair["sep"].strip() else r"\s+"
    opening = r"[\[(\"']*\s*(?:tensor\()?"
    return f"{guard}{words}{sign}{opening}({NUMBER})"
