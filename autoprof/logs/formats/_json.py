"""The shared reader of JSON objects in lines: alone or after other text, and Python's dicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..extras import import_pandas
from ..fields import FIELDS, METRICS, Meaning, column_of_rate, is_loss, is_unit_known, normalize_key, scale_of
from ..line_database import TEXT_SUFFIX, LineDatabase
from ..line_forms import FormatHints, rank_sql, time_sql
from ..log_file import LogFile
from ..values import parse_list, parse_texts, parse_value
from ._base import LogFormat, RawRecords

if TYPE_CHECKING:
    import pandas as pd

SPLIT_KEYS: Final = frozenset({"mode", "split", "phase", "stage", "subset", "kind", "event"})
"""Keys that may mark a record as one of validation."""
_MAX_KEYS: Final = 300
"""Keys without a meaning are dropped from this number on."""
_MAX_DEPTH: Final = 4
_MAX_LIST: Final = 64
_MAX_TEXT: Final = 80
_PREFIX_COLUMNS: Final = {"_rank": rank_sql(), "_time": time_sql()}
"""Columns from the text before an object."""


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
        records = own = 0
        for line in sample:
            data = _find_object(line)
            if data is not None and self._is_record(data):
                records += 1
                own += bool(self.own_keys) and self.own_keys <= data.keys()
        return 1.2 * own if self.own_keys else float(records)

    def read(self, log_file: LogFile, database: LineDatabase) -> RawRecords:
        """Read the file block by block."""
        raw, offset = RawRecords(self.name), 0
        for block in log_file.blocks():
            raw.lines += database.load(block)
            self.read_block(raw, database, offset)
            offset += block.count("\n") + 1
        return raw

    def read_block(self, raw: RawRecords, database: LineDatabase, offset: int) -> None:
        """Append the records of the block that the database holds; ``offset`` is the number of lines before it."""
        pointers: dict[str, str] = {}
        keys_with_text: set[str] = set()
        structures: list[str] = []
        for structure, text in database.objects():
            try:
                data = json.loads(text)
            except ValueError:  # DuckDB accepts some JSON that Python rejects
                continue
            if not isinstance(data, dict) or not self._is_record(data):
                continue
            structures.append(structure)
            for path, value in self._values(data):
                key = "/".join(path)
                if len(pointers) >= _MAX_KEYS and self.hints.meaning(key) is None:
                    continue
                pointers[key] = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
                if not isinstance(value, (int, float)):
                    keys_with_text.add(key)
        if structures and pointers:
            part = database.values(structures, pointers, keys_with_text, _PREFIX_COLUMNS)
            raw.used_lines += part["_n"].nunique()
            raw.add(self._convert(raw, part, pointers, keys_with_text), offset)

    def _convert(
        self, raw: RawRecords, part: pd.DataFrame, keys: Mapping[str, str], keys_with_text: set[str]
    ) -> pd.DataFrame:
        """Bring every column to the unit of its field, and texts to numbers."""
        extra: dict[str, Any] = {}
        for key in keys:
            meaning = self.hints.meaning(key)
            kind = FIELDS[meaning.field].kind if meaning is not None else "plain"
            units = [meaning.unit, self.hints.units.get(meaning.field)] if meaning is not None else []
            scale = next((scale for scale in (scale_of(kind, unit) for unit in units) if scale is not None), None)
            unit_known = is_unit_known(kind, scale)
            if scale is not None and scale != 1.0:
                part[key] *= scale
            if key in keys_with_text:
                texts = part.pop(key + TEXT_SUFFIX)
                if normalize_key(key) in SPLIT_KEYS:
                    part = part.drop(columns=key)
                    extra["_split"] = texts
                    continue
                if texts.notna().any():
                    per_gpu = _split_gpus(key, texts, meaning, raw)
                    extra |= per_gpu
                    unit_known |= bool(per_gpu) or _fill_from_texts(part, key, texts, meaning, kind, scale, raw)
            raw.add_meaning(key, meaning, unit_known)
        return part.assign(**extra).dropna(axis="columns", how="all")

    def _is_record(self, data: Mapping[str, Any]) -> bool:
        keys = ["/".join(path) for path, _ in self._values(data)]
        fields = {meaning.field for key in keys if (meaning := self.hints.meaning(key))}
        return bool(fields & METRICS) or any(is_loss(key) for key in keys)

    def _values(self, data: Mapping[str, Any], parent: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield each value that can become a column, with the path of keys that leads to it."""
        for name, value in data.items():
            path = (*parent, str(name))
            key = "/".join(path)
            if key in self.ignored_keys or normalize_key(str(name)) in self.hints.ignore:
                continue
            if isinstance(value, dict):
                if len(path) < _MAX_DEPTH:
                    yield from self._values(value, path)
            elif isinstance(value, bool):
                continue
            elif isinstance(value, (int, float)) or value is None:
                yield path, value if value is not None else math.nan
            elif isinstance(value, list):
                if value and len(value) <= _MAX_LIST and self.hints.meaning(key) is not None:
                    yield path, value
            elif normalize_key(str(name)) in SPLIT_KEYS or (
                len(value) < _MAX_TEXT and (self.hints.meaning(key) or parse_value(value))
            ):
                yield path, value


def _split_gpus(key: str, texts: Any, meaning: Meaning | None, raw: RawRecords) -> dict[str, Any]:
    """Return a column per GPU for utilisation logged as a list; nothing for other columns."""
    if meaning is None or meaning.field != "gpu_util" or meaning.gpu is not None:
        return {}
    lists = {text: parse_list(text) or [] for text in texts.dropna().unique()}
    gpus = max(map(len, lists.values()), default=0)
    columns = {}
    for gpu in range(gpus if gpus > 1 else 0):
        values = {text: numbers[gpu] if gpu < len(numbers) else math.nan for text, numbers in lists.items()}
        columns[f"{key}/{gpu}"] = texts.map(values).astype("float64")
        raw.add_meaning(f"{key}/{gpu}", Meaning("gpu_util", 0, "%", gpu))
    return columns


def _fill_from_texts(
    part: pd.DataFrame, key: str, texts: Any, meaning: Meaning | None, kind: str, scale: float | None, raw: RawRecords
) -> bool:
    """Fill a column's gaps with the numbers in its texts; return whether a text holds the unit."""
    numbers, units = parse_texts(texts, kind, scale, allow_units=meaning is not None)
    part[key] = part[key].fillna(import_pandas().Series(numbers, index=part.index))
    for unit in units:
        field_of_unit = column_of_rate(unit)
        if field_of_unit is not None and meaning is not None and meaning.field == "throughput":
            raw.meanings[key] = meaning._replace(field=field_of_unit)
    return any(scale_of(kind, unit) is not None for unit in units)


def _find_object(line: str) -> dict[str, Any] | None:
    start, end = line.find("{"), line.rfind("}")
    if start < 0 or end < start:
        return None
    text = line[start : end + 1]
    try:
        data = json.loads(text)
    except ValueError:
        try:
            data, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:
            data = _parse_python_dict(text)
    return data if isinstance(data, dict) else None


def _parse_python_dict(text: str) -> Any:
    """Read a Python dict by the same replacements as the database."""
    if "'" not in text:
        return None
    try:
        return json.loads(
            text.replace("'", '"').replace("None", "null").replace(": nan", ': "nan"').replace(": inf", ': "inf"')
        )
    except ValueError:
        return None
