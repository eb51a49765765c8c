"""JSON objects in lines, alone or behind something, and Python's dicts. The machine behind every reader of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..engine import TEXT, Engine, need_pandas, parse_unique
from ..fields import FIELDS, METRICS, Meaning, is_loss, normal, rate_unit, scale_of
from ..numbers import parse_list, parse_value
from ..pairs import Hints, rank_of, time_s_of
from ..source import Source
from .base import Raw

if TYPE_CHECKING:
    import pandas as pd

SPLITS: Final = frozenset({"mode", "split", "phase", "stage", "subset", "kind", "event"})
"""Keys that may say that a record is of a validation."""
_COLUMNS: Final = 300
_PREFIX: Final = {
    "_prefix_rank": rank_of(),
    "_time": time_s_of(),
}


@dataclass(frozen=True)
class JsonFormat:
    """A kind of log with an object a line; ``marks`` are its own keys, ``leave`` those not looked into."""

    name: str
    marks: frozenset[str] = frozenset()
    hints: Hints = field(default_factory=Hints)
    leave: frozenset[str] = frozenset()

    def score(self, sample: Sequence[str]) -> float:
        """Count the records in the sample, a little more where the marks of the kind are in them."""
        count = marked = 0
        for line in sample:
            data = _object_in(line)
            if data is not None and self._is_record(data):
                count += 1
                marked += bool(self.marks) and self.marks <= data.keys()
        if self.marks:
            return 1.2 * marked if marked else 0.0
        return float(count)

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the file block by block."""
        raw, offset = Raw(self.name), 0
        for block in source.blocks():
            raw.lines += engine.load(block)
            self.add(raw, engine, offset)
            offset += block.count("\n") + 1
        return raw

    def add(self, raw: Raw, engine: Engine, offset: int) -> None:
        """Read the objects of the block that the engine holds."""
        paths: dict[str, str] = {}
        texts: set[str] = set()
        structures: list[str] = []
        for structure, text in engine.objects():
            try:
                data = json.loads(text)
            except ValueError:  # what DuckDB calls JSON and Python does not
                continue
            if not isinstance(data, dict) or not self._is_record(data):
                continue
            structures.append(structure)
            for path, value in self._items(data):
                key = "/".join(path)
                if len(paths) >= _COLUMNS and self.hints.meaning(key) is None:
                    continue
                paths[key] = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
                if not isinstance(value, (int, float)):
                    texts.add(key)
        if structures and paths:
            part = engine.values(structures, paths, texts, _PREFIX)
            raw.used_lines += part["_n"].nunique()
            raw.add(self._convert(raw, part, paths, texts), offset)

    def _convert(self, raw: Raw, part: pd.DataFrame, paths: Mapping[str, str], texts: set[str]) -> pd.DataFrame:
        """Bring every column to its unit, and what is no number yet to one."""
        extra: dict[str, Any] = {}
        for key in paths:
            meaning = self.hints.meaning(key)
            kind = FIELDS[meaning.field].kind if meaning is not None else "plain"
            said = [meaning.unit, self.hints.units.get(meaning.field)] if meaning is not None else []
            scale = next((scale for scale in (scale_of(kind, unit) for unit in said) if scale is not None), None)
            known = scale is not None or kind in ("plain", "count", "rate")
            if scale is not None and scale != 1.0:
                part[key] *= scale
            if key in texts:
                column = part.pop(key + TEXT)
                if normal(key) in SPLITS:
                    part = part.drop(columns=key)
                    extra["_split"] = column
                    continue
                if column.notna().any():
                    known |= self._texts(part, key, column, meaning, kind, scale, extra, raw)
            raw.learn(key, meaning, known)
        if "_prefix_rank" in part:
            part = part.rename(columns={"_prefix_rank": "_rank"})
        return part.assign(**extra).dropna(axis="columns", how="all")

    def _texts(
        self, part: pd.DataFrame, key: str, column: Any, meaning: Meaning | None, kind: str, scale: float | None,
        extra: dict[str, Any], raw: Raw,
    ) -> bool:  # fmt: skip
        """Read a column's texts into it; return whether one of them says the unit."""
        if meaning is not None and meaning.field == "gpu_util" and meaning.card is None:
            lists = {text: parse_list(text) for text in column.dropna().unique()}
            cards = max((len(values) for values in lists.values() if values is not None), default=0)
            for card in range(cards if cards > 1 else 0):
                extra[f"{key}/{card}"] = parse_unique(column, lambda text, at=card: _at(lists[text], at))  # type: ignore[misc]
                raw.learn(f"{key}/{card}", Meaning("gpu_util", 0, "%", card))
            if cards > 1:
                return True
        said = False

        def read(text: str) -> float:
            nonlocal said
            value = parse_value(text)
            if value is None or (meaning is None and value.unit is not None):
                return math.nan
            own = scale_of(kind, value.unit)
            said |= own is not None
            column = rate_unit(value.unit)
            if column is not None and meaning is not None and meaning.field == "throughput":
                raw.meanings[key] = meaning._replace(field=column)
            return value.number * (own if own is not None else scale if scale is not None else 1.0)

        part[key] = part[key].fillna(need_pandas().Series(parse_unique(column, read), index=part.index))
        return said

    def _is_record(self, data: Mapping[str, Any]) -> bool:
        keys = ["/".join(path) for path, _ in self._items(data)]
        fields = {meaning.field for key in keys if (meaning := self.hints.meaning(key))}
        return bool(fields & METRICS) or any(is_loss(key) for key in keys)

    def _items(self, data: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield the values of an object that can be a column, with the keys that lead to them."""
        for name, value in data.items():
            path = (*at, str(name))
            key = "/".join(path)
            if key in self.leave or normal(str(name)) in self.hints.ignore:
                continue
            if isinstance(value, dict):
                if len(path) < 4:
                    yield from self._items(value, path)
            elif isinstance(value, bool):
                continue
            elif isinstance(value, (int, float)) or value is None:
                yield path, value if value is not None else math.nan
            elif isinstance(value, list):
                if value and len(value) <= 64 and self.hints.meaning(key) is not None:
                    yield path, value
            elif normal(str(name)) in SPLITS or (len(value) < 80 and (self.hints.meaning(key) or parse_value(value))):
                yield path, value


def _at(values: list[float] | None, at: int) -> float:
    return values[at] if values is not None and at < len(values) else math.nan


def _object_in(line: str) -> dict[str, Any] | None:
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
            data = _literal(text)
    return data if isinstance(data, dict) else None


def _literal(text: str) -> Any:
    """Read a Python dict as the engine reads it."""
    if "'" not in text:
        return None
    try:
        return json.loads(
            text.replace("'", '"').replace("None", "null").replace(": nan", ': "nan"').replace(": inf", ': "inf"')
        )
    except ValueError:
        return None
