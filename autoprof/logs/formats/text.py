"""Any text with names and numbers: only values whose meaning is certain.

A line is a record if it has a counter (``step``, ``epoch``) and a number with a name. A value is a known column if its
whole name is a known key and nothing in its line speaks of a validation, an average or one of several values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..fields import (
    COUNTERS,
    FIELDS,
    METRICS,
    POSITIONS,
    SETTINGS,
    VALIDATION_WORD,
    Meaning,
    column_of_rate,
    meaning_of,
    normalize_key,
)
from ..records import Records
from ..values import Value, to_float
from ._pairs import RATE, find_pairs, take_counters, take_prefix, take_time

_UNCERTAIN: Final = re.compile(
    r"(?i)(?<![^\W_])(?:avg|average|mean|running|ema|smooth(?:ed)?|moving|median|best|min|max|final|total|"
    r"last|overall|summary|saving|saved|config|args|Namespace|took|done|finished|end|target|previous|initial)(?![^\W_])"
)
"""Words that say that a line's values do not belong to one step."""
_TRAINING: Final = re.compile(r"(?i)(?<![^\W_])train(?:ing)?(?![^\W_])")
_NO_RECORD: Final = re.compile(
    r"\d+%\||\[=*>?\.*\]|\|[# ]{6,}\||[█━]{3}"
    r"|[(){}]\s*$|^\s*(?:#|//|def |for |if |import |return |class |self\.)|\bf[\"']|==|\w\(\w*="
)
"""A progress bar, whose values may be means or old ones; source code, calls and settings."""


def read_text(lines: Sequence[str]) -> Records:
    """Read the lines with a counter and a number; another line may begin a validation."""
    records = Records("text", weight=0.2)
    is_validating, reached = False, -1.0
    for whole_line in lines:
        line, time = take_time(whole_line)
        row = _parse(line, records)
        if row is None:
            is_validating = is_validating != bool((_TRAINING if is_validating else VALIDATION_WORD).search(line))
            continue
        step = next((row[name] for name in ("global_step", "step", "iter", "iteration", "batch") if name in row), None)
        if is_validating and step is not None and step <= reached:
            continue  # a batch of the validation that a line above has begun
        is_validating, reached = False, reached if step is None else step
        records.rows.append({**time, **row})
    if len(records.rows) < 2:
        records.rows.clear()
    records.used_lines = len(records.rows)
    return records


def _parse(line: str, records: Records) -> dict[str, float] | None:
    """Return the values of a line by name; None if it is no record."""
    if len(line) > 4000 or _NO_RECORD.search(line):
        return None
    rest, row = take_prefix(line)
    rest, counters = take_counters(rest)
    pairs = [(found, name, value, meaning_of(name)) for found, name, value in find_pairs(rest)]
    words, end = "", 0
    for found, *_ in pairs:
        words, end = f"{words} {rest[end : found.start()]}", found.end()
    words += f" {rest[end:]}"
    is_counted = counters or any(meaning is not None and meaning.field in COUNTERS for *_, meaning in pairs)
    is_step = bool(counters.keys() - {"epoch"})
    if not is_counted or _UNCERTAIN.search(words):
        return None
    is_validation = VALIDATION_WORD.search(words) is not None or (
        bool(pairs) and pairs[0][3] is None and VALIDATION_WORD.match(pairs[0][1].replace("_", " ")) is not None
    )
    is_evaluated = any(VALIDATION_WORD.search(name.replace("_", " ")) for _, name, *_ in pairs)
    numbers: dict[str, float] = {}
    for found, name, value, meaning in pairs:
        if is_validation and (meaning is None or meaning.field not in (*POSITIONS, "val_loss")):
            continue
        if is_step and is_evaluated and name.lower().startswith("train"):
            continue  # the mean of an evaluation on training data
        if _is_certain(found, name, value, meaning):
            records.put(numbers, name, value)
    for found in () if is_validation else RATE.finditer(rest):
        records.put(numbers, column_of_rate(found["unit"]) or "", Value(to_float(found["number"]), found["unit"]))
    for name in counters:
        records.add_meaning(name, meaning_of(name))
    known = [records.meanings.get(name) for name in numbers]
    is_measured = any(meaning is None or meaning.field in METRICS - SETTINGS for meaning in known)
    return row | numbers | counters if is_measured else None


def _is_certain(found: re.Match[str], name: str, value: Value, meaning: Meaning | None) -> bool:
    """Return whether the line leaves no doubt about a number."""
    if meaning is None:
        return found["number"] is not None  # a cell without a sign needs a known name
    if "," in found[0] and FIELDS[meaning.field].kind not in ("count", "rate"):
        return False  # 2,345 is 2345, or 2.345
    return value.unit is not None or normalize_key(name) != "throughput"
