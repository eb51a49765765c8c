"""The shared reader of JSON objects in lines: alone or after other text, and Python's dicts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..fields import (
    FIELDS,
    METRICS,
    SETTINGS,
    Meaning,
    column_of_rate,
    is_loss,
    is_unit_known,
    lacks_thing,
    normalize_key,
    scale_of,
)
from ..line_forms import RANK_PATTERN, TIME_PATTERN, FormatHints
from ..log_file import LogFile
from ..values import number_of, parse_list, parse_texts, parse_value
from ._base import LogFormat, RawRecords, note_qualified

SPLIT_KEYS: Final = frozenset({"mode", "split", "phase", "stage", "subset", "kind", "event", "type"})
"""Keys that may mark a record as one of validation."""
_OTHER_EVENT: Final = re.compile(r"(?i)(?:checkpoint|ckpt|sav(?:e|ing)|config|hparams|system|hardware|summary|init)")
"""Kinds of records that are neither of training nor of validation; their times are no times of steps."""
_MAX_KEYS: Final = 300
"""Keys without a meaning are dropped from this number on."""
_MAX_DEPTH: Final = 4
_MAX_LIST: Final = 64
_MAX_TEXT: Final = 80
_MAX_STRUCTURES: Final = 2000
_OPEN_OBJECT: Final = re.compile(r"\{\s*[\"'][^{}]*$")
"""The first line of a dictionary that goes on below: ``{'accuracy': 0.1,``."""
_MAX_LINES_OF_OBJECT: Final = 80
_STEP_AND_TIME: Final = re.compile(r"(?i)\bstep \d+\b.*\btime\b")
_VALIDATION_PREFIX: Final = re.compile(r"(?i)(?<![\w/.])(?:val|valid|validation|eval|evaluation|test|dev)\b\W*$")
"""The end of the text before an object of validation: ``val: {…}``."""
_VALIDATION_LINE: Final = re.compile(r"(?i)^\W*(?:val|valid|validation|eval|evaluation|test|dev)\b\s*[|:]")
"""The beginning of the text before an object of validation: ``eval | step: 100 | output:``."""
_COUNTERS: Final = {
    "step": re.compile(r"(?i)(?<![\w/])(?:global |train )?(?:step|iter|iteration)\b\s*[:=#]?\s*(\d+)(?![\w.])"),
    "epoch": re.compile(r"(?i)(?<![\w/])epoch\b\s*[:=#]?\s*(\d+)(?![\w.])"),
}
_NUMBERS: Final = frozenset({int, float})
_PYTHON_NUMBER: Final = re.compile(r"(?<=[:\[,] )(-?(?:nan|inf))\b")


@dataclass(frozen=True, kw_only=True)
class JsonFormat(LogFormat):
    """A format with one JSON object per line."""

    own_keys: frozenset[str] = frozenset()
    """Keys that only this format has together; a line without them is no record. Empty: any object is."""
    hints: FormatHints = field(default_factory=FormatHints)
    ignored_keys: frozenset[str] = frozenset()
    """Keys that are skipped with all below them."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the records in the sample; records with the format's own keys count a little more."""
        records = own = counted = 0
        for _, line in join_objects(sample, 0):
            for data, _ in find_objects(line) if "{" in line else ():
                if self.is_record(data):
                    records += 1
                    counted += self.has_counter(data)
                    own += bool(self.own_keys) and self.own_keys <= data.keys()
        if records == 1 and not counted:
            return 0.0  # a configuration
        return 1.2 * own if self.own_keys else float(records)

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file block by block."""
        raw, reader = RawRecords(self.name), _ObjectReader(self)
        offset, above = 0, ""
        for block in log_file.blocks():
            lines = block.split("\n")
            raw.lines += sum(1 for line in lines if line and not line.isspace())
            for n, line in join_objects(lines, offset):
                if "{" in line:
                    for data, prefix in find_objects(line):
                        reader.add(data, n, f"{above} {prefix}" if above and _leads(above, prefix) else prefix)
                    above = ""
                elif line:
                    above = line.rstrip() or above
            offset += len(lines)
            reader.settle()
        reader.finish(raw)
        return raw

    def read_objects(self, raw: RawRecords, objects: Sequence[Mapping[str, Any]]) -> None:
        """Append the records among these objects."""
        reader = _ObjectReader(self)
        for n, data in enumerate(objects, 1):
            reader.add(data, n, "")
        raw.lines += len(objects)
        reader.finish(raw)

    def is_record(self, data: Mapping[str, Any]) -> bool:
        """Return whether an object has a measurement of training, or a counter and another number."""
        if "train_runtime" in data:
            return False  # the Trainer's summary of the run: ``train_loss`` is its mean
        keys = ["/".join(path) for path, _ in self.values(data)]
        fields = {meaning.field for key in keys if (meaning := self.hints.meaning(key))}
        if fields & (METRICS - SETTINGS) or any(is_loss(key) for key in keys):
            return True
        return bool(fields & {"step", "epoch"}) and (bool(fields & SETTINGS) or self._has_unknown_number(data))

    def has_counter(self, data: Mapping[str, Any]) -> bool:
        """Return whether an object has a step or an epoch."""
        fields = {meaning.field for path, _ in self.values(data) if (meaning := self.hints.meaning("/".join(path)))}
        return bool(fields & {"step", "epoch"})

    def _has_unknown_number(self, data: Mapping[str, Any]) -> bool:
        return any(
            isinstance(value, (int, float)) and self.hints.meaning("/".join(path)) is None
            for path, value in self.values(data)
        )

    def values(self, data: Mapping[str, Any], parent: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield each value that can become a column, with the path of keys that leads to it."""
        for name, value in data.items():
            path = (*parent, str(name))
            key = "/".join(path)
            if key in self.ignored_keys or normalize_key(str(name)) in self.hints.ignore:
                continue
            if isinstance(value, dict):
                if len(path) < _MAX_DEPTH:
                    yield from self.values(value, path)
            elif isinstance(value, bool):
                continue
            elif isinstance(value, (int, float)) or value is None:
                yield path, value if value is not None else math.nan
            elif isinstance(value, list):
                if value and len(value) <= _MAX_LIST and self.hints.meaning(key) is not None:
                    yield path, value
            elif normalize_key(str(name)) in SPLIT_KEYS or (
                len(value) < _MAX_TEXT and (parse_value(value) or (value[:1] in "[{" and parse_list(value)))
            ):
                yield path, value


class _Structure:
    """The objects with the same keys: their values, in columns."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        """The keys that may name the kind of an object."""
        self.at: list[int] = []
        self.prefixes: list[str] = []
        self.values: dict[str, list[Any]] = {}
        self.parts: list[dict[str, Any]] = []
        self.is_flat = False
        """Whether every key has a column that is as long as the objects are many."""
        self.appends: list[Callable[[Any], None]] = []
        """Appends to the columns, in the order of the keys."""


class _ObjectReader:
    """Collects objects by their structure, and converts their values to numbers."""

    def __init__(self, log_format: JsonFormat) -> None:
        self._format = log_format
        self._structures: dict[tuple[str, ...], _Structure | None] = {}
        """By the keys of the object; None for objects that are no record."""
        self._lines: set[int] = set()
        self.used_lines = 0
        self._last_line = -1
        self._pending = RawRecords("")

    def add(self, data: Mapping[str, Any], n: int, prefix: str) -> None:
        """Add the object of line ``n``; ``prefix`` is the text before it."""
        keys = tuple(data)
        structure = self._structures.get(keys)
        if structure is None:
            if len(self._structures) > _MAX_STRUCTURES or not self._format.is_record(data):
                return  # a structure may have its first number later
            structure = self._structures[keys] = _Structure(
                tuple(key for key in keys if normalize_key(str(key)) in SPLIT_KEYS)
            )
        for key in structure.kinds:
            kind = data[key]
            if isinstance(kind, str) and _OTHER_EVENT.match(kind):
                return
        self.used_lines += n != self._last_line
        self._last_line = n
        count = len(structure.at)
        structure.at.append(n)
        structure.prefixes.append(prefix)
        if structure.is_flat and _NUMBERS.issuperset(map(type, data.values())):
            for append, value in zip(structure.appends, data.values(), strict=True):
                append(value)
            return
        values = structure.values
        for path, value in self._format.values(data):
            key = path[0] if len(path) == 1 else "/".join(path)
            column = values.get(key)
            if column is None:
                if len(values) >= _MAX_KEYS and self._format.hints.meaning(key) is None:
                    continue
                column = values[key] = []
            if len(column) < count:
                column.extend([math.nan] * (count - len(column)))
            if len(column) == count:
                column.append(value)
        structure.is_flat = values.keys() == data.keys() and all(len(values[key]) == count + 1 for key in keys)
        structure.appends = [values[key].append for key in keys] if structure.is_flat else []

    def settle(self) -> None:
        """Convert the values of the block to numbers."""
        for number, structure in enumerate(self._structures.values()):
            if structure is not None and structure.at:
                self._pending.add(self._convert(structure), kind=number)
                structure.at, structure.prefixes, structure.values = [], [], {}
                structure.is_flat = False

    def finish(self, raw: RawRecords) -> None:
        """Append all records to ``raw``."""
        self.settle()
        raw.take(self._pending)
        raw.used_lines += self.used_lines
        note_qualified(raw, self._format.hints)

    def _convert(self, structure: _Structure) -> dict[str, Any]:
        """Bring every column to the unit of its field, and texts to numbers."""
        count = len(structure.at)
        columns: dict[str, Any] = {"_n": structure.at}
        for key, values in structure.values.items():
            values.extend([math.nan] * (count - len(values)))
            meaning = self._format.hints.meaning(key)
            kind = FIELDS[meaning.field].kind if meaning is not None else "plain"
            units = [meaning.unit, self._format.hints.units.get(meaning.field)] if meaning is not None else []
            scale = next((scale for scale in (scale_of(kind, unit) for unit in units) if scale is not None), None)
            if normalize_key(key.rpartition("/")[2]) in SPLIT_KEYS:
                if any(isinstance(value, str) for value in values):
                    columns["_validation"] = [float(_names_validation(value)) for value in values]
                continue
            known = is_unit_known(kind, scale)
            if meaning is not None and meaning.field == "throughput" and lacks_thing(key):
                known = "throughput" in self._format.hints.units
            numbers, in_text = self._to_numbers(key, values, meaning, kind, scale, columns)
            key = self._format.hints.qualify(key)
            columns[key] = numbers
            self._pending.add_meaning(key, self._meanings.get(key, meaning), known or in_text)
        if any(structure.prefixes):
            _read_prefixes(structure.prefixes, columns)
            self._read_counters(structure.prefixes, columns)
        return {key: values for key, values in columns.items() if key == "_n" or not np.isnan(values).all()}

    def _read_counters(self, prefixes: Sequence[str], columns: dict[str, Any]) -> None:
        """Add the counters from the text before objects that have none: ``step 10: {…}``."""
        known = {meaning.field for key in columns if (meaning := self._format.hints.meaning(key)) is not None}
        if known & {"step", "epoch"}:
            return
        for name, pattern in _COUNTERS.items():
            found = [pattern.search(prefix) for prefix in prefixes]
            if any(found):
                columns[name] = [float(match[1]) if match else math.nan for match in found]
                self._pending.add_meaning(name, Meaning(name, 0))

    @cached_property
    def _meanings(self) -> dict[str, Meaning]:
        """Meanings by key, where the unit of the values overrules the key."""
        return {}

    def _to_numbers(
        self,
        key: str,
        values: list[Any],
        meaning: Meaning | None,
        kind: str,
        scale: float | None,
        columns: dict[str, Any],
    ) -> tuple[Any, bool]:
        """Return a column as numbers, and whether its texts hold the unit; a list of GPUs gives further columns."""
        factor = 1.0 if scale is None else scale
        kinds = set(map(type, values))
        if kinds <= {int, float}:
            try:
                numbers = np.array(values, dtype=np.float64)
            except OverflowError:
                numbers = np.array([number_of(value) for value in values])
            return (numbers * factor if factor != 1.0 else numbers), False
        if list in kinds:
            return self._lists(key, values, meaning, columns), True
        result = np.full(len(values), math.nan)
        texts = []
        for at, value in enumerate(values):
            if isinstance(value, str):
                texts.append(at)
            elif isinstance(value, (int, float)):
                result[at] = number_of(value) * factor
        found, units = parse_texts([values[at] for at in texts], kind, scale, allow_units=meaning is not None)
        result[texts] = found
        for unit in units:
            field_of_unit = column_of_rate(unit)
            if field_of_unit is not None and meaning is not None and meaning.field == "throughput":
                self._meanings[key] = meaning._replace(field=field_of_unit)
        if meaning is not None and meaning.field == "throughput":
            return result, any(column_of_rate(unit) is not None for unit in units)
        return result, any(scale_of(kind, unit) is not None for unit in units)

    def _lists(self, key: str, values: list[Any], meaning: Meaning | None, columns: dict[str, Any]) -> Any:
        """Return the first number of each list; the utilisations of several GPUs become a column each."""
        rows = [parse_list(json.dumps(value)) if isinstance(value, list) else [_number(value)] for value in values]
        gpus = max(len(row or ()) for row in rows)
        if meaning is not None and meaning.field == "gpu_util" and meaning.gpu is None and gpus > 1:
            for gpu in range(gpus):
                name = f"{key}/{gpu}"
                columns[name] = [row[gpu] if row and gpu < len(row) else math.nan for row in rows]
                self._pending.add_meaning(name, Meaning("gpu_util", 0, "%", gpu))
            return np.full(len(values), math.nan)
        return np.array([row[0] if row else math.nan for row in rows], dtype=np.float64)


def join_objects(lines: Iterable[str], offset: int) -> Iterator[tuple[int, str]]:
    """Yield each line with its number; the lines of a dictionary over several lines as one."""
    pending: list[str] = []
    start = 0
    for n, line in enumerate(lines, offset + 1):
        if pending:
            pending.append(line)
            closes, reopens = "}" in line, "{" in line
            if closes and not reopens:
                yield start, " ".join(part.strip() if at else part for at, part in enumerate(pending))
                pending = []
            elif reopens or len(pending) > _MAX_LINES_OF_OBJECT:
                yield from enumerate(pending, start)
                pending = []
        elif line.rfind("{") > line.rfind("}") and _OPEN_OBJECT.search(line):
            pending, start = [line], n
        else:
            yield n, line
    yield from enumerate(pending, start)


def _leads(above: str, prefix: str) -> bool:
    """Return whether the line above says which step the object is of."""
    return (above.endswith(":") and not prefix.strip()) or _STEP_AND_TIME.search(above) is not None


def _number(value: Any) -> float:
    if isinstance(value, str):
        found = parse_value(value)
        return math.nan if found is None else found.number
    return number_of(value)


def _names_validation(value: Any) -> bool:
    """Return whether a record's ``mode`` or ``split`` is that of validation."""
    return isinstance(value, str) and re.match(r"(?i)(?:val|eval|test|dev|valid)", value) is not None


def _read_prefixes(prefixes: Sequence[str], columns: dict[str, Any]) -> None:
    """Add rank and time from the text before the objects."""
    ranks = [re.search(RANK_PATTERN, prefix) for prefix in prefixes]
    if any(ranks):
        columns["_rank"] = [float(found[1]) if found else math.nan for found in ranks]
    validation = [
        _VALIDATION_PREFIX.search(prefix) is not None or _VALIDATION_LINE.match(prefix) is not None
        for prefix in prefixes
    ]
    if any(validation) and "_validation" not in columns:
        columns["_validation"] = [float(found) for found in validation]
    times = [re.search(TIME_PATTERN, prefix) for prefix in prefixes]
    if any(times):
        values = [parse_value(found[1].replace("/", "-")) if found else None for found in times]
        columns["_time"] = [math.nan if value is None else value.number for value in values]


def find_objects(line: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each JSON object or Python dict of a line, with the text before it.

    A line may have several objects, because ranks that share a file mix their lines.
    """
    if line.startswith("{"):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            pass
        else:
            yield data, ""
            return
    if '"' not in line and "'" not in line:
        return
    decoder = json.JSONDecoder()
    at, previous = line.find("{"), 0
    found = False
    while at >= 0:
        try:
            data, end = decoder.raw_decode(line, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(data, dict):
                found = True
                yield data, line[previous:at]
                previous = end
        at = line.find("{", end)
    if not found and "'" in line:
        start, end = line.find("{"), line.rfind("}")
        data = _parse_python_dict(line[start : end + 1])
        if isinstance(data, dict):
            yield data, line[:start]


def _parse_python_dict(text: str) -> Any:
    """Read a Python dict by the replacements that make it JSON."""
    text = _PYTHON_NUMBER.sub(lambda match: f'"{match[1]}"', text.replace("'", '"')).replace("None", "null")
    text = text.replace(": True", ": true").replace(": False", ": false")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
