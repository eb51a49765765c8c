"""JSON of any tool: an object per line, alone or after other text, Python's dicts, and documents of many objects."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ..fields import COUNTERS, METRICS, SETTINGS, names_validation, normalize_key
from ..records import Records
from ..values import Value, parse_value
from ._pairs import take_counters, take_prefix, take_time

_MEASURED: Final = METRICS - SETTINGS
_DECODER: Final = json.JSONDecoder(parse_int=float)  # an integer beyond the range of floats is infinite
MAX_NESTED: Final = 100
"""Objects around one error that are tried: each goes through the whole rest of the line, and no log nests as deeply."""
_KINDS: Final = frozenset({"mode", "split", "phase", "stage", "subset", "kind", "event", "type"})
"""Keys that may mark a record as one of validation."""
_VALIDATION_BEFORE: Final = re.compile(r"(?i)(?<![\w/.])(?:val|valid|validation|eval|evaluation|test|dev)\b\W*$")
"""The end of the text before an object of validation: ``val: {…}``."""


def read_objects(lines: Sequence[str], *, name: str = "jsonl", tool: Mapping[str, Any] | None = None) -> Records:
    """Read the objects of each line, of a tool those that have all its keys."""
    records = Records(name, tool or {}, 1.01 if tool is None else tool.get("weight", 10.0))
    counts_elsewhere = False
    for line in lines:
        if "{" not in line:
            counts_elsewhere = counts_elsewhere or bool(take_counters(line)[1].keys() - {"epoch"})
            continue
        count = len(records.rows)
        for data, prefix in _find_objects(line):
            _add(records, data, prefix)
        records.used_lines += len(records.rows) > count
    fields = {meaning.field for meaning in records.meanings.values()}
    is_setting = len(records.rows) == 1 and not (fields & COUNTERS and fields & _MEASURED)
    if is_setting or (counts_elsewhere and not fields & COUNTERS):
        records.rows.clear()  # the steps stand in other lines, or the object is a configuration
    return records


def read_document(lines: Sequence[str]) -> Records | None:
    """Read the longest list of objects in a document of several lines; None for a file of another kind."""
    filled = [line for line in lines if line.strip()]
    first = filled[0].strip() if filled else ""
    if not first.startswith(("{", "[")):
        return None
    records = Records("json document")
    try:
        data = _DECODER.decode("\n".join(filled))
    except (ValueError, RecursionError):
        return None
    found = _longest_list(data)
    if len(filled) == 1 and len(found) < 2:
        return None
    if isinstance(data, dict) and "log_history" in data:
        records.reader = "hf trainer_state"
    for data in found:
        _add(records, data)
    if len(found) == 1 and not any(meaning.field in COUNTERS for meaning in records.meanings.values()):
        records.rows.clear()  # a configuration
    records.used_lines = len(filled)
    return records


def _longest_list(data: Any) -> list[dict[str, Any]]:
    """Return the longest list of objects in a document, or the document."""
    if isinstance(data, list):
        return [item for item in data if isinstance(item, dict)]
    if not isinstance(data, dict):
        return []
    inner = [_longest_list(value) for value in data.values() if isinstance(value, (list, dict))]
    return max(inner, key=len, default=[]) or [data]


def _add(records: Records, data: Mapping[str, Any], prefix: str = "") -> None:
    """Append an object that is a record: with a measurement, or with a counter and another number."""
    values = list(_values(records, data))
    meanings = [records.meaning(key) for key, _ in values]
    fields = {None if meaning is None else meaning.field for meaning in meanings}
    is_counted = bool(fields & COUNTERS)
    # The Trainer's summary of a run, whose `train_loss` is a mean, does not count as a record.
    is_summary = not {"train_runtime", "total_flos"}.isdisjoint(data)
    if is_summary or not (fields & _MEASURED or (is_counted and fields & {*SETTINGS, None})):
        return
    kinds = [value for key, value in data.items() if normalize_key(str(key)) in _KINDS and isinstance(value, str)]
    if not set(records.tool.get("keys", "").split()) <= data.keys():
        return
    row: dict[str, float] = {}
    if any(map(names_validation, kinds)) or _VALIDATION_BEFORE.search(prefix):
        row["_validation"] = 1.0
    if prefix:
        rest, time = take_time(prefix)
        rest, rank = take_prefix(rest)
        row |= time | rank
        for name, number in {} if is_counted else take_counters(rest)[1].items():
            row[name] = number
            records.add_meaning(name, records.meaning(name))
    for key, value in values:
        records.put(row, key, value)
    records.rows.append(row)


def _values(records: Records, data: Mapping[str, Any], parent: str = "", depth: int = 1) -> Iterator[tuple[str, Value]]:
    """Yield each number, and text of a number, with the path of keys that leads to it."""
    for name, value in data.items():
        key = f"{parent}{name}"
        if key in records.tool.get("ignored", "").split():
            continue
        if not isinstance(value, dict):
            yield from _numbers(records, key, value)
        elif depth < 4:
            yield from _values(records, value, f"{key}/", depth + 1)


def _numbers(records: Records, key: str, value: Any) -> Iterator[tuple[str, Value]]:
    """Yield the number of a value; of a list the only number, or one per GPU for a list of utilisations."""
    meaning = records.meaning(key)
    if isinstance(value, (int, float)):
        if not isinstance(value, bool):
            yield key, Value(float(value))
    elif isinstance(value, list):
        numbers = [Value(float(item)) for item in value if isinstance(item, (int, float))]
        if meaning is not None and meaning.field == "gpu_util" and len(numbers) == len(value):
            yield from ((f"gpu_util_{gpu}", number) for gpu, number in enumerate(numbers))
    elif isinstance(value, str) and len(value) < 80:
        position = re.fullmatch(r"(\d+)/\d+", value)  # a counter with its end
        is_counter = meaning is not None and meaning.field in COUNTERS
        parsed = parse_value(position[1] if position is not None and is_counter else value)
        if parsed is not None:
            yield key, parsed


def _find_objects(line: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each JSON object or Python dict of a line, with the text before it.

    A line may have several objects, because ranks that share a file mix their lines.
    """
    at, end, found, failed = line.find("{"), 0, False, Counter[int]()
    while at >= 0:
        try:
            data, stop = _DECODER.raw_decode(line, at)
        except json.JSONDecodeError as error:
            failed[error.pos] += 1  # each object around an error fails at its place
            stop = at + 1 if failed[error.pos] < MAX_NESTED else max(error.pos, at + 1)
        except ValueError:
            stop = at + 1
        except RecursionError:
            return
        else:
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
