"""Names and numbers in a line of text: ``iter 10: loss 2.31, time 12.1ms``, ``lm loss: 1.0E+01 |``, ``[1][50/100]``.

A line is read here once for each shape it takes (the same line with other numbers is the same shape); the engine gets
one expression for every number of the shape and reads a million lines with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from .fields import FIELDS, METRICS, Meaning, is_loss, meaning_of, normal, rate_unit, scale_of
from .numbers import NUMBER

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
_BARE: Final = re.compile(
    r"(?<![\w.:=])(?P<number>\d[\d,]*\.?\d*)\s?(?P<unit>"
    r"k?(?:tok(?:en)?s?|samples?|images?|imgs?|examples?|iters?|it|steps?)/s(?:ec)?|s/it(?:er)?)(?!\w)"
)
_PLACE: Final = re.compile(r"(?P<open>\[|\|)\s*(?P<number>\d+)\s*/\s*(?P<total>\d+)\s*(?=[\[\](|])")
RANK_SQL: Final = (
    r"\b(?:[Rr]ank|RANK|default|[Gg]lobal [Rr]ank|[Ll]ocal [Rr]ank|local_rank|LOCAL_RANK)[\s_:=]?\s?(\d+)\b"
)
TIME_SQL: Final = r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)"
_TIME: Final = re.compile(TIME_SQL)
VALIDATION: Final = re.compile(
    r"(?i)^\W*(?:\S+ ){0,12}?\W*(?:epoch\((?:val|test)\)|validation|validating|sanity|eval(?:uation)?|evaluating|"
    r"valid|val|testing|test)\b(?![_/. -]?(?:loss|[a-z]*[:=]))"
)


def rank_of(text: str = "line") -> str:
    """Return the engine's expression for the rank in a line."""
    return f"try_cast(regexp_extract({text}, '{RANK_SQL}', 1) as double)"


def time_s_of(text: str = "line") -> str:
    """Return the engine's expression for the time in a line, in seconds since 1970."""
    moment = f"replace(replace(regexp_extract({text}, '{TIME_SQL}', 1), '/', '-'), ',', '.')"
    return f"epoch(try_cast({moment} as timestamp))"


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a form: the key it stands under, the expression that finds it, and what makes it the column's unit.

    Expressions are joined in the order of the line, so that ``loss`` is not found in ``val loss``; ``follows`` is the
    one before it. One that stands ``alone`` is in no join.
    """

    key: str
    meaning: Meaning | None
    pattern: str
    scale: float | None = None
    commas: bool = False
    follows: str = ""
    alone: bool = False

    @property
    def known(self) -> bool:
        """Say whether the log says the unit."""
        return self.scale is not None


@dataclass(frozen=True, slots=True)
class Form:
    """Everything that lines of one form have: their numbers, and whether a rank and a time stand there."""

    numbers: tuple[Number, ...]
    has_rank: bool = False
    has_time: bool = False
    is_validation: bool = False

    @property
    def fields(self) -> frozenset[str]:
        """Return the columns that the numbers belong to."""
        return frozenset(number.meaning.field for number in self.numbers if number.meaning is not None)

    @property
    def is_record(self) -> bool:
        """Say whether the line tells where it stands in the run and something measured there."""
        return bool(self.fields & {"step", "epoch"}) and any(
            (number.meaning is not None and number.meaning.field in METRICS) or is_loss(number.key)
            for number in self.numbers
            if not number.alone  # the rate of a bar that counts files or batches of validation is no record
        )


@dataclass(frozen=True, slots=True)
class Hints:
    """What a format means by its own words: columns of keys, units of columns, keys that are to be left out."""

    rename: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    ignore: frozenset[str] = frozenset(
        {"eta", "eta_seconds", "remaining_time", "info", "warning", "error", "pid", "version", "v_num"}
    )

    def meaning(self, key: str) -> Meaning | None:
        """Return what a key stands for in this format."""
        name = normal(key)
        if name in self.rename:
            return Meaning(self.rename[name], 0)
        return meaning_of(key)


def form_of(line: str, hints: Hints) -> Form:
    """Read a line's numbers."""
    found: dict[str, Number] = {}
    places: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for pair in _PAIR.finditer(line):
        number = _number(line, pair, hints)
        if number is not None and number.key not in found:
            found[number.key] = number
            places[number.key] = pair.start()
            spans.append(pair.span())
    fields = {number.meaning.field for number in found.values() if number.meaning is not None}
    for bare in _BARE.finditer(line):
        column = rate_unit(bare["unit"]) or "throughput"
        if column not in fields and not any(start <= bare.start() < end for start, end in spans):
            pattern = rf"({NUMBER})\s?{re.escape(bare['unit'])}"
            scale = scale_of(FIELDS[column].kind, bare["unit"]) or 1.0
            found[bare["unit"]] = Number(normal(bare["unit"]), Meaning(column, 50), pattern, scale, alone=True)
    place = _PLACE.search(line)
    if place is not None:
        start = r"\[" if place["open"] == "[" else r"\|"
        if "step" not in fields:
            found["_place"] = Number(
                "_place", Meaning("step", 90), rf"{start}\s*(\d+)\s*/\s*\d+\s*[\[\](|]", 1.0, alone=True
            )
        found["_of"] = Number("_of", None, rf"{start}\s*\d+\s*/\s*(\d+)\s*[\[\](|]", 1.0, alone=True)
    joined = sorted((number for number in found.values() if not number.alone), key=lambda number: places[number.key])
    alone = [number for number in found.values() if number.alone]
    return Form(
        (*_anchored(joined), *alone),
        re.search(RANK_SQL, line) is not None,
        _TIME.search(line) is not None,
        VALIDATION.search(line) is not None,
    )


def _anchored(numbers: list[Number]) -> list[Number]:
    """Tell every number which one it follows."""
    pairs = zip([None, *numbers], numbers, strict=False)
    return [
        replace(number, follows="" if last is None else last.pattern.replace(f"({NUMBER})", f"(?:{NUMBER})"))
        for last, number in pairs
    ]


def _number(line: str, pair: re.Match[str], hints: Hints) -> Number | None:
    key, unit = pair["key"], (pair["unit"] or "").strip() or None
    name = normal(key)
    if name in hints.ignore or normal(key.split()[-1]) in hints.ignore:
        return None
    meaning = hints.meaning(key)
    other = rate_unit(unit)
    if (
        other is not None
        and other != (meaning.field if meaning else None)
        and (meaning is None or meaning.field in ("throughput", "tflops"))
    ):
        meaning = Meaning(other, 20 if meaning is None else meaning.rank)
    if meaning is None and not pair["sep"].strip():
        return None  # without a sign between them a word and a number are only that
    if meaning is not None and meaning.field == "rank":
        return None  # the line's rank is read wherever it stands
    scale = _scale(meaning, unit, hints)
    return Number(name, meaning, _pattern(line, pair), scale, "," in pair["number"])


def _scale(meaning: Meaning | None, unit: str | None, hints: Hints) -> float | None:
    """Return what makes the number one of the column's unit; None where it has one that is not said."""
    if meaning is None:
        return 1.0
    kind = FIELDS[meaning.field].kind
    for said in (unit, meaning.unit, hints.units.get(meaning.field)):
        scale = scale_of(kind, said)
        if scale is not None:
            return scale
    return 1.0 if kind in ("plain", "count", "rate") else None


def _pattern(line: str, pair: re.Match[str]) -> str:
    """Return an expression for RE2 that finds this number in every line of the shape."""
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
