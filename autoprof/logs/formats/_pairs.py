"""Numbers and their names in a line of text: ``name: 1.5``, ``name=1.5ms``, ``| name 1.5 |``, ``Epoch [1/3]``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..fields import UNITS
from ..values import NUMBER, Value, parse_value, to_float

_STEP: Final = r"(?:it|iters?|iterations?|steps?|batch|batches|updates?)"
_THING: Final = r"(?:tok|toks|tokens?|words?|samples?|images?|imgs?|examples?|seqs?|sequences?)"
_RATE: Final = rf"{_STEP}/s(?:ec)?|[km]? ?{_THING}/s(?:ec)?"
_SIMPLE: Final = sorted((unit for units in UNITS.values() for unit in units), key=len, reverse=True)
UNIT: Final = rf"(?i:{_RATE}|(?:{'|'.join(_SIMPLE)})(?:/{_STEP})?)(?![\w/]|\s?[:=])"
_NAME: Final = r"[^\W\d][^:=：,;|\[\]{}()<>\t\n]*?(?:\s?\([^()\d]*\))?"
_NO_SECOND: Final = r"(?!\s*[(/±*]|\s*,?\s*[-+.]?\d)"
PLAIN: Final = re.compile(
    rf"(?P<name>{_NAME})(?:\s*[:=：]\s*(?P<number>{NUMBER})(?:\s?(?P<unit>{UNIT}))?(?=[\s,;|)\]}}]|$){_NO_SECOND}"
    rf"|\s+(?P<number_of_cell>{NUMBER})(?:\s?(?P<unit_of_cell>{UNIT}))?(?=\s*(?:[,;|\t]|$)){_NO_SECOND})"
)
"""A name with a sign and one number behind it, or a name and a number that fill a cell."""
RATE: Final = re.compile(rf"(?:^|[,;|])\s*(?P<number>{NUMBER})\s?(?P<unit>(?i:{_RATE}))(?=\s*(?:[,;|]|$))")
"""A cell with a rate, which its unit names: ``| 512 samples/s |``."""
SPACED: Final = re.compile(
    rf"(?P<name>{_NAME})(?:\s*[:=]\s*|\s+)(?P<number>{NUMBER})(?:\s?(?P<unit>{UNIT}))?(?![\w.]|:\d)"
    r"(?P<number_of_cell>)(?P<unit_of_cell>)"
)
"""As ``PLAIN``, for a tool whose lines are known: other numbers may follow, and no sign is needed."""
COUNTER: Final = re.compile(
    r"(?i)(?:(?<![^\W\d])(?P<word>[^\W\d]+)[ _-])?(?<![\w/.])"
    r"(?P<name>global[ _]step|step|iter|iteration|epoch|update|batch|训练步数|步数|步|迭代|轮次|轮)"
    r"\s*[:=#：]?\s*[\[(]?\s*(?P<at>\d+)\s*(?:/\s*(?P<of>\d+))?\s*[\])]?(?!\w|%|\s?/|[.:,-]\d)"
    r"(?:\s*,?\s*\[\s*(?P<inner>\d+)\s*/\s*(?P<length>\d+)\s*\]|"
    r"\s*[,|]\s*(?P<inner_cell>\d+)\s*/\s*(?P<length_cell>\d+)(?=\s*[,|]))?"
)
"""``Step 5``, ``Epoch [1/3]``, ``iter: 10/600``, ``Epoch: [0][10/5005]``, ``Epoch 1 | 10/600 |``."""
_OTHER_COUNTER: Final = re.compile(
    r"(?i)best|max|min|total|micro|val|valid|validation|eval|evaluation|test|warmup|per|of|last|first|num|every|"
    r"accumulation|inner|sub|env|agent|target|final|previous|next|from"
)
"""Words in front of a counter that does not count the steps or the epochs of the run."""


_WIDE: Final = str.maketrans("，：；（）【】＝", ",:;()[]=")


def take_time(line: str) -> tuple[str, dict[str, float]]:
    """Return a line without its time, and the record of its time."""
    time = re.search(r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)", line)
    moment = None if time is None else parse_value(time[1])
    if time is None or moment is None:
        return line, {}
    return f"{line[: time.start()]}|{line[time.end() :]}", {"_time": moment.number}


def take_prefix(line: str) -> tuple[str, dict[str, float]]:
    """Return a line without its rank and level, in half-width signs, and the record of its rank."""
    row: dict[str, float] = {}
    if not line.isascii():
        line = re.sub(r"第\s*(\d+)\s*(?:个\s*)?(轮|步)", r"\2 \1,", line.translate(_WIDE))
    if "ank" in line or "default" in line:
        rank = re.search(r"(?i)\[(?:default|rank)[ _:]?(\d+)\]:?", line)
        if rank is not None:
            row["_rank"] = float(rank[1])
            line = f"{line[: rank.start()]}|{line[rank.end() :]}"
    return re.sub(r"\b(?:DEBUG|INFO|WARNING)\b:?", "|", line, count=1), row


def take_counters(line: str) -> tuple[str, dict[str, float]]:
    """Return a line without its counters, and their numbers by name; ``_of`` is the number of steps per epoch."""
    row: dict[str, float] = {}
    parts, end = [], 0
    for found in COUNTER.finditer(line):
        if found["word"] is not None and _OTHER_COUNTER.fullmatch(found["word"]):
            continue
        name = found["name"].lower().replace(" ", "_")
        if name in row:
            continue
        row[name] = float(found["at"])
        if name != "epoch" and found["of"]:
            row["_of"] = float(found["of"])
        inner = found["inner"] or found["inner_cell"]
        if name == "epoch" and inner:
            row["step"], row["_of"] = float(inner), float(found["length"] or found["length_cell"])
        parts += [line[end : found.start("name")], "|"]
        end = found.end()
    return "".join([*parts, line[end:]]), row


def find_pairs(line: str, pattern: re.Pattern[str] = PLAIN) -> Iterator[tuple[re.Match[str], str, Value]]:
    """Yield each match of ``PLAIN`` or ``SPACED``, its name, and its number with the unit."""
    for found in pattern.finditer(line):
        text, unit = found["number"] or found["number_of_cell"], found["unit"] or found["unit_of_cell"]
        yield found, found["name"].strip(), Value(to_float(text), unit or None)
