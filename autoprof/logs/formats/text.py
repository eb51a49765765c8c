"""Any text with names and numbers: only values whose meaning is certain.

A line is a record if it has a counter (``step``, ``epoch``) and a number with a name. A value is a known column if its
whole name is a known key and nothing in its line speaks of a validation, an average or one of several values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from ..log_file import LogFile
from ..values import Value, to_float
from ._base import LogFormat, RawRecords, read_lines
from ._pairs import POSITION, RATE, find_pairs, take_counters, take_prefix, take_time

_UNCERTAIN: Final = re.compile(
    r"(?i)(?<![^\W_])(?:avg|average|mean|running|ema|smooth(?:ed)?|moving|median|best|min|max|final|total|"
    r"last|overall|summary|saving|saved|config|args|Namespace|took|done|finished|end|target|previous|initial)(?![^\W_])"
)
"""Words that say that a line's values do not belong to one step."""
_TRAINING: Final = re.compile(r"(?i)(?<![^\W_])train(?:ing)?(?![^\W_])")
_BAR: Final = re.compile(r"\d+%\||\[=*>?\.*\]|\|[# ]{6,}\||[█━]{3}")
"""A progress bar: its values may be means or old ones, and its position a step off."""
_CODE: Final = re.compile(r"[(){}]\s*$|^\s*(?:#|//|def |for |if |import |return |class |self\.)|\bf[\"']|==|\w\(\w*=")
"""Source code, calls and settings."""


@dataclass(frozen=True, kw_only=True)
class PlainText(LogFormat):
    """Lines with names and numbers."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the records of the sample, at a lower weight than a format of its own."""
        raw = RawRecords(self.name)
        count = sum(self._parse(take_time(line)[0], raw) is not None for line in sample)
        # The lines of a tool that is known count more.
        return 0.2 * count if count >= 2 else 0.0

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file line by line."""
        raw = RawRecords(self.name)
        is_validating, reached, epoch = False, -1.0, None
        for n, whole_line in read_lines(log_file, raw):
            line, time = take_time(whole_line)
            row = self._parse(line, raw)
            if row is None:
                is_validating = is_validating != _changes_data(line, is_validating)
                epoch = _epoch_of_header(line) or epoch
                continue
            step = next(
                (row[name] for name in ("global_step", "step", "iter", "iteration", "batch") if name in row), None
            )
            if is_validating and step is not None and step <= reached:
                continue  # a batch of the validation that a line above has begun
            is_validating, reached = False, reached if step is None else step
            raw.used_lines += 1
            raw.rows.append({"_n": n, **time, **({} if epoch is None else {"epoch": epoch}), **row})
        return raw

    def _parse(self, line: str, raw: RawRecords) -> dict[str, float] | None:
        """Return the values of a line by name; None if it is no record."""
        if len(line) > 4000 or _BAR.search(line) or _CODE.search(line):
            return None
        rest, row = take_prefix(line)
        rest, counters = take_counters(rest)
        pairs = list(find_pairs(rest))
        words = _words_between(rest, [found for found, _, _ in pairs])
        if _UNCERTAIN.search(words) or not (counters or any(_is_counted([name]) for _, name, _ in pairs)):
            return None
        is_validation = VALIDATION_WORD.search(words) is not None or (bool(pairs) and _begins_validation(pairs[0][1]))
        is_step = bool(counters.keys() - {"epoch"})
        if not is_step and POSITION.search(rest):
            return None  # a step whose number has no name
        is_evaluated = any(VALIDATION_WORD.search(name.replace("_", " ")) for _, name, _ in pairs)
        numbers: dict[str, float] = {}
        for found, name, value in pairs:
            meaning = meaning_of(name)
            if is_validation and (meaning is None or meaning.field not in (*POSITIONS, "val_loss")):
                continue
            if is_step and is_evaluated and name.lower().startswith("train"):
                continue  # the mean of an evaluation on training data
            if _is_certain(found, name, value, meaning):
                raw.put(numbers, name, value)
        for found in () if is_validation else RATE.finditer(rest):
            raw.put(numbers, column_of_rate(found["unit"]) or "", Value(to_float(found["number"]), found["unit"]))
        for name in counters:
            raw.add_meaning(name, meaning_of(name))
        is_measured = any(
            (meaning := meaning_of(name)) is None or meaning.field in METRICS - SETTINGS for name in numbers
        )
        return row | numbers | counters if is_measured else None


def _words_between(line: str, pairs: Sequence[re.Match[str]]) -> str:
    """Return the parts of a line that are in no pair."""
    ends = [0, *(found.end() for found in pairs)]
    starts = [*(found.start() for found in pairs), len(line)]
    return " ".join(line[end:start] for end, start in zip(ends, starts, strict=True))


def _begins_validation(name: str) -> bool:
    """Return whether the first name says that the line is of validation: ``Valid acc: 0.8 | loss: 2.1``."""
    return meaning_of(name) is None and VALIDATION_WORD.match(name.replace("_", " ")) is not None


def _is_certain(found: re.Match[str], name: str, value: Value, meaning: Meaning | None) -> bool:
    """Return whether the line leaves no doubt about a number."""
    if meaning is None:
        return found["number"] is not None  # a cell without a sign needs a known name
    if "," in found[0] and FIELDS[meaning.field].kind not in ("count", "rate"):
        return False  # 2,345 is 2345, or 2.345
    return value.unit is not None or normalize_key(name) != "throughput"


def _is_counted(names: Iterable[str]) -> bool:
    return any((meaning := meaning_of(name)) is not None and meaning.field in COUNTERS for name in names)


def _changes_data(line: str, is_validating: bool) -> bool:
    """Return whether a line without values begins a validation, or ends the one that goes on."""
    return (_TRAINING if is_validating else VALIDATION_WORD).search(line) is not None


def _epoch_of_header(line: str) -> float | None:
    """Return the epoch of a line such as ``Epoch 2/5``, to which the records below belong."""
    if _UNCERTAIN.search(line):
        return None
    counters = take_counters(line)[1] if "poch" in line or "轮" in line else {}
    return counters.get("epoch") if counters.keys() <= {"epoch"} else None
