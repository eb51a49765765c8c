"""JSON lines of any tool: an object per line, alone or after other text, and Python's dicts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ..fields import COUNTERS, METRICS, SETTINGS, is_loss, names_validation, normalize_key
from ..log_file import LogFile
from ..values import Value, number_of, parse_list, parse_value
from ._base import FormatHints, LogFormat, RawRecords, read_lines
from ._pairs import take_counters, take_prefix, take_time

_MEASURED: Final = METRICS - SETTINGS
_POSITION: Final = re.compile(r"(\d+)/\d+")
"""A counter with its end: ``10/100``."""


@dataclass(frozen=True, kw_only=True)
class JsonFormat(LogFormat):
    """A format with one JSON object per line."""

    own_keys: frozenset[str] = frozenset()
    """Keys that only this format has together; a file without them has no record. Empty: any object is one."""
    hints: FormatHints = field(default_factory=FormatHints)
    ignored_keys: frozenset[str] = frozenset()
    """Keys that are skipped with all below them."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the records in the sample; records with the format's own keys count a little more."""
        objects = [data for line in sample for data, _ in find_objects(line)]
        records = [data for data in objects if self.is_record(data)]
        if self.own_keys:
            # Other objects may stand between those of a tool that is known.
            return 10.0 * len(records)
        fields = self._fields(records[0]) if len(records) == 1 else set()
        is_configuration = len(records) == 1 and not (fields & COUNTERS and fields & _MEASURED)
        return 0.0 if is_configuration else float(len(records))

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file line by line; an object at its end is complete if it can be parsed."""
        raw, last, counts_elsewhere = RawRecords(self.name), 0, False
        for n, line in read_lines(log_file, raw, keeps_last=True):
            if "{" not in line:
                counts_elsewhere = counts_elsewhere or bool(take_counters(line)[1].keys() - {"epoch"})
                continue
            for data, prefix in find_objects(line):
                if self.add_object(raw, data, n, prefix):
                    raw.used_lines += n != last
                    last = n
        if counts_elsewhere and not any(meaning.field in COUNTERS for meaning in raw.meanings.values()):
            return RawRecords(self.name, lines=raw.lines)  # the steps stand in other lines
        return raw

    def is_record(self, data: Mapping[str, Any]) -> bool:
        """Return whether an object has a measurement of training, or a counter and another number."""
        # The Trainer's summary of a run, whose `train_loss` is a mean, does not count as a record.
        if not {"train_runtime", "total_flos"}.isdisjoint(data) or not self.own_keys <= data.keys():
            return False
        fields = self._fields(data)
        return bool(fields & _MEASURED) or bool(fields & COUNTERS and fields & {*SETTINGS, None})

    def has_counter(self, data: Mapping[str, Any]) -> bool:
        """Return whether an object has a step or an epoch."""
        return bool(self._fields(data) & COUNTERS)

    def _fields(self, data: Mapping[str, Any]) -> set[str | None]:
        """Return the columns that the keys of an object mean; any loss counts as one, an unknown key as None."""
        keys = [key for key, _ in self._values(data)]
        meanings = {None if (meaning := self.hints.meaning(key)) is None else meaning.field for key in keys}
        return meanings | {"loss"} if any(map(is_loss, keys)) else meanings

    def add_object(self, raw: RawRecords, data: Mapping[str, Any], n: int, prefix: str = "") -> bool:
        """Append the object of line ``n`` if it is a record; ``prefix`` is the text before it."""
        # Keys that may mark a record as one of validation.
        kinds = [
            value
            for key, value in data.items()
            if normalize_key(str(key)) in {"mode", "split", "phase", "stage", "subset", "kind", "event", "type"}
        ]
        # Kinds of records that are neither of training nor of validation.
        if not self.is_record(data) or any(
            isinstance(kind, str)
            and re.match(r"(?i)(?:checkpoint|ckpt|sav(?:e|ing)|config|hparams|system|hardware|summary|init)", kind)
            for kind in kinds
        ):
            return False
        row: dict[str, float] = {"_n": n}
        # The end of the text before an object of validation: `val: {…}`.
        if any(map(names_validation, kinds)) or re.search(
            r"(?i)(?<![\w/.])(?:val|valid|validation|eval|evaluation|test|dev)\b\W*$", prefix
        ):
            row["_validation"] = 1.0
        if prefix:
            rest, time = take_time(prefix)
            rest, rank = take_prefix(rest)
            row |= time | rank
            if not self.has_counter(data):
                for name, number in take_counters(rest)[1].items():
                    row[name] = number
                    raw.add_meaning(name, self.hints.meaning(name))
        for key, value in self._values(data):
            raw.put(row, key, value, self.hints)
        raw.rows.append(row)
        return True

    def _values(self, data: Mapping[str, Any], parent: str = "", depth: int = 1) -> Iterator[tuple[str, Value]]:
        """Yield each number, and text of a number, with the path of keys that leads to it."""
        for name, value in data.items():
            key = f"{parent}{name}"
            if key in self.ignored_keys:
                continue
            if not isinstance(value, dict):
                yield from self._numbers(key, value)
            elif depth < 4:
                yield from self._values(value, f"{key}/", depth + 1)

    def _numbers(self, key: str, value: Any) -> Iterator[tuple[str, Value]]:
        """Yield the number of a value; of a list the only number, or one per GPU for a list of utilisations."""
        if isinstance(value, (int, float)):
            if not isinstance(value, bool):
                yield key, Value(number_of(value))
            return
        meaning = self.hints.meaning(key)
        if isinstance(value, str) and value[:1] == "[":
            value = parse_list(value)
        if isinstance(value, list):
            numbers = [Value(number_of(item)) for item in value if isinstance(item, (int, float))]
            if meaning is not None and meaning.field == "gpu_util" and len(numbers) == len(value):
                yield from ((f"gpu_util_{gpu}", number) for gpu, number in enumerate(numbers))
            elif len(numbers) == 1:
                yield key, numbers[0]
        elif isinstance(value, str) and len(value) < 80:
            position = _POSITION.fullmatch(value)
            is_counter = meaning is not None and meaning.field in COUNTERS
            parsed = Value(float(position[1])) if position is not None and is_counter else parse_value(value)
            if parsed is not None:
                yield key, parsed


def find_objects(line: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each JSON object or Python dict of a line, with the text before it.

    A line may have several objects, because ranks that share a file mix their lines.
    """
    at, end, found = line.find("{"), 0, False
    while at >= 0:
        try:
            data, stop = json.JSONDecoder().raw_decode(line, at)
        except ValueError:
            stop = at + 1
        except RecursionError:
            return
        else:
            if isinstance(data, dict):
                found = True
                yield data, line[end:at]
                end = stop
        at = line.find("{", stop)
    if not found and "'" in line:
        start = line.find("{")
        text = re.sub(r"(?<=[:\[,] )(-?(?:nan|inf))\b", r'"\1"', line[start : line.rfind("}") + 1])
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            data = ast.literal_eval(text)
            if isinstance(data, dict):
                yield data, line[:start]


JSONL: Final = JsonFormat(name="jsonl", priority=20)
