"""Tables: Lightning's ``metrics.csv`` with its half-empty rows, and any other with names above the numbers."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..engine import Engine, need_pandas, parse_unique
from ..fields import FIELDS, METRICS, is_loss, meaning_of, scale_of
from ..numbers import parse_value
from ..source import Source
from .base import Raw

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS: Final = (",", "\t", ";", "|")


@dataclass(frozen=True, slots=True)
class _Head:
    at: int
    separator: str
    names: tuple[str, ...]
    line: str


@dataclass(frozen=True)
class Csv:
    """A table with separators; lines above its head and heads repeated inside it are left out."""

    name: str = "csv"

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines with as many values as the head has names, where there is a known name in a head."""
        head = _find_head(sample)
        if head is None:
            return 0.0
        same = [line for line in sample[head.at + 1 :] if line.count(head.separator) == len(head.names) - 1]
        return float(len(same)) if len(same) >= 0.3 * len([line for line in sample if line.strip()]) else 0.0

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the file block by block with pandas' C parser."""
        pd = need_pandas()
        raw = Raw(self.name)
        head: _Head | None = None
        offset = 0
        for block in source.blocks():
            lines = block.count("\n") + 1
            raw.lines += lines - block.count("\n\n") - (not block.strip())
            text = block
            if head is None:
                head = _find_head(block.split("\n", 2000)[:2000])
                if head is None:
                    offset += lines
                    continue
                text = "\n".join(block.split("\n")[head.at + 1 :])
                raw.used_lines += 1
            if not source.whole and text.rpartition("\n")[2].count(head.separator) < len(head.names) - 1:
                text = text.rpartition("\n")[0]  # a row that was cut off: its last number may be half a number
            part = pd.read_csv(
                io.StringIO(text), sep=head.separator, names=list(head.names), index_col=False, on_bad_lines="skip",
                low_memory=False, skipinitialspace=True, quoting=0, encoding_errors="replace",
            )  # fmt: skip
            raw.add(self._convert(raw, part, lines - len(part)), offset)
            offset += lines
        return raw

    def _convert(self, raw: Raw, part: pd.DataFrame, start: int) -> pd.DataFrame:
        import numpy as np

        columns: dict[str, Any] = {"_n": np.arange(start, start + len(part))}
        known_columns = []
        for key in part.columns:
            meaning = meaning_of(key)
            kind = FIELDS[meaning.field].kind if meaning is not None else "plain"
            scale = scale_of(kind, meaning.unit) if meaning is not None else None
            column, said = _numbers(part[key], kind, scale)
            raw.learn(key, meaning, said or scale is not None or kind in ("plain", "count", "rate"))
            columns[key] = column
            if (meaning is not None and meaning.field in METRICS) or is_loss(key):
                known_columns.append(key)
        pd = need_pandas()
        frame = pd.DataFrame(columns)
        used = frame[known_columns].notna().any(axis="columns")
        empty = part.isna().sum(axis="columns") >= len(part.columns) - 2
        keep = used | (frame.drop(columns="_n").notna().sum(axis="columns").ge(2) & empty)
        raw.used_lines += int(keep.sum())
        return frame[keep]


def _numbers(column: Any, kind: str, scale: float | None) -> tuple[Any, bool]:
    """Return a column as numbers in the unit of its kind, and whether its texts say the unit."""
    pd = need_pandas()
    numbers = pd.to_numeric(column, errors="coerce").astype("float64") * (scale if scale is not None else 1.0)
    odd = column.notna() & numbers.isna() if column.dtype.kind not in "fiu" else None
    said = False
    if odd is not None and odd.any():

        def read(text: str) -> float:
            nonlocal said
            value = parse_value(text)
            if value is None:
                return float("nan")
            own = scale_of(kind, value.unit)
            said |= own is not None
            return value.number * (own if own is not None else scale if scale is not None else 1.0)

        numbers = numbers.copy()
        numbers[odd] = parse_unique(column[odd], read)
    return numbers, said


def _find_head(lines: Sequence[str]) -> _Head | None:
    for at, line in enumerate(lines[:2000]):
        for separator in _SEPARATORS:
            if separator not in line or len(line) > 8192:
                continue
            names = tuple(name.strip().strip("\"'#").strip() for name in line.split(separator))
            if len(names) < 2 or len(set(names)) < len(names) or any(not _is_name(name) for name in names):
                continue
            meanings = {meaning.field for name in names if (meaning := meaning_of(name))}
            below = next((text for text in lines[at + 1 :] if text.strip()), None)
            if (
                not (meanings & METRICS or any(map(is_loss, names)))
                or below is None
                or below.count(separator) != len(names) - 1
            ):
                continue
            if all(not value.strip() or parse_value(value) is not None for value in below.split(separator)[:2]):
                return _Head(at, separator, names, line)
    return None


def _is_name(text: str) -> bool:
    return bool(re.match(r"^[^\W\d][^:=(){}]*(?:\([^()]*\))?[^:=(){}]*$", text)) and len(text) < 80
