"""The columns of a table of ``load_logs``: names, units, and the keys under which training tools log them.

``tools.yaml`` lists them. A key that is not listed, or whose words say that it is an average or one of several values,
has no meaning and keeps its own name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import yaml

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Field:
    """One known column of the table."""

    unit: str
    kind: str
    """The kind of its unit: ``time``, ``size``, ``percent``, ``rate``, ``count`` or ``plain``."""
    keys: tuple[str, ...]
    """Normalized keys that mean this column, the preferred one first."""


def _read_table() -> dict[str, Any]:
    text = files(__package__).joinpath("tools.yaml").read_text("utf-8")
    data: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return data


TABLE: Final = _read_table()
"""The content of ``tools.yaml``."""
FIELDS: Final[dict[str, Field]] = {
    name: Field(entry["unit"], entry["kind"], tuple(entry["keys"].split())) for name, entry in TABLE["columns"].items()
}
"""The known columns, in the order of the table."""
POSITIONS: Final = frozenset({"step", "epoch", "rank", "timestamp"})
COUNTERS: Final = frozenset({"step", "epoch"})
METRICS: Final = frozenset(FIELDS) - POSITIONS - {"elapsed_s", "tokens", "samples", "batch_size"}
"""Columns that are measurements."""
SETTINGS: Final = frozenset({"lr"})
"""Columns that a configuration has too: alone they make no record."""
UNITS: Final[dict[str, dict[str, float]]] = {
    kind: {str(unit): float(scale) for names, scale in units.items() for unit in names.split()}
    for kind, units in TABLE["units"].items()
}
_BY_KEY: Final = {key: (field, at) for field, entry in FIELDS.items() for at, key in enumerate(entry.keys)}
_VALIDATION: Final = (
    "val|valid|validation|eval|evaluation|evaluating|validating|test|testing|dev|holdout|held[ -]?out|验证|测试"
)
VALIDATION_WORD: Final = re.compile(rf"(?i)(?<![\w/])(?:{_VALIDATION})(?![\w/])")
_GROUPS: Final = frozenset(TABLE["groups"].split())
"""Groups (``train/loss``) that leave the meaning of a key as it is."""
_RATE_UNITS: Final = {
    "tokens_per_s": re.compile(r"[kmg]?(?:tok|toks|tokens?|words?)/s"),
    "steps_per_s": re.compile(r"(?:it|its|iters?|iterations?|steps?|batch|batches|updates?)/s"),
    "throughput": re.compile(r"[kmg]?(?:samples?|images?|imgs?|examples?|seqs?|sequences?|sents?)/s"),
    "tflops": re.compile(r"tflops?"),
}


class Meaning(NamedTuple):
    """The meaning of a key of a log."""

    field: str
    """The column."""
    preference: int
    """Of several keys for one column the lowest number is chosen."""
    unit: str | None = None
    """The unit in the key, as ``ms`` in ``step_time_ms``."""


@lru_cache(maxsize=65536)
def normalize_key(key: str) -> str:
    """Return a key in lower case, with one underscore between words."""
    return re.sub(r"[^\w]+", "_", key.strip().lower()).strip("_")


@lru_cache(maxsize=8192)
def meaning_of(key: str) -> Meaning | None:
    """Return the meaning of a key of a log; None for a key whose meaning is not certain.

    The whole key is matched first, then the key without the unit at its end (``step_time_ms``), without a word for the
    training (``train_loss``), and without groups (``train/loss``). ``val_loss`` is the only column of validation.
    """
    name = normalize_key(key)
    gpu = re.fullmatch(r"gpu_?(\d+)_util\w*|gpu_util\w*?_(\d+)", name)
    if gpu is not None:
        return Meaning(f"gpu_util_{gpu[1] or gpu[2]}", 0)
    found = _match(name)
    if found is not None:
        return found
    *groups, last = [normalize_key(part) for part in re.split(r"[/.]", key)]
    found = _match(last)
    others = [group for group in groups if re.fullmatch(_VALIDATION, group) is None]
    if found is None or not _GROUPS.issuperset(others):
        return None
    if len(others) < len(groups):
        return Meaning("val_loss", found.preference) if found.field == "loss" and "train" not in last else None
    return found._replace(preference=found.preference + 1)


def _match(name: str) -> Meaning | None:
    """Return the meaning of a normalized key without groups."""
    if name in _BY_KEY:
        return Meaning(*_BY_KEY[name])
    suffix = re.fullmatch(r"(.+?)_(?:in_)?([a-z]+|mib|gib)", name)
    if suffix is not None and suffix[1] in _BY_KEY:
        field, preference = _BY_KEY[suffix[1]]
        if suffix[2] in UNITS.get(FIELDS[field].kind, ()):
            return Meaning(field, preference, suffix[2])
    validation = re.fullmatch(rf"(?:{_VALIDATION})_(.+)", name)
    if validation is not None:
        found = _match(validation[1])
        is_result = found is not None and found.field == "loss" and not validation[1].startswith("train")
        return Meaning("val_loss", 10) if is_result else None
    neutral = re.fullmatch(r"(?:train|training|current|curr|cur)_(.+)", name)
    found = None if neutral is None else _match(neutral[1])
    return found if found is None or found.field in METRICS else None


def names_validation(value: object) -> bool:
    """Return whether a value such as that of ``mode`` names validation data."""
    return isinstance(value, str) and re.fullmatch(rf"(?i)(?:{_VALIDATION})", value.strip()) is not None


@lru_cache(maxsize=8192)
def scale_of(kind: str, unit: str | None) -> float | None:
    """Return the factor from this unit to the column's unit; None without a unit, or for a unit of another kind."""
    text = (unit or "").lower().replace(" ", "")
    if kind in UNITS:
        return UNITS[kind].get(text.partition("/")[0])
    if kind in ("rate", "count") and text:
        thousands = re.match(r"[kmb](?=$|tok|word|sam|im|ex|se)", text)
        is_rate = kind == "rate" and any(pattern.match(text) for pattern in _RATE_UNITS.values())
        return {"k": 1e3, "m": 1e6, "b": 1e9}[thousands[0]] if thousands else 1.0 if is_rate else None
    return None


def column_of_rate(unit: str | None) -> str | None:
    """Return the column of a rate's unit: ``tok/s`` is ``tokens_per_s``."""
    text = (unit or "").lower().replace(" ", "")
    return next((column for column, pattern in _RATE_UNITS.items() if pattern.match(text)), None)


def unknown_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns of numbers whose names are not known, without empty ones.

    A second key of a known column (``learning_rate`` beside ``lr``) has a known name.
    """
    names = [str(name) for name in table.select_dtypes("number") if name not in FIELDS and name != "rank"]
    names = [name for name in names if not name.startswith("gpu_util_") and np.isfinite(table[name]).any()]
    meanings = {name: meaning_of(name) for name in names}
    return [name for name, meaning in meanings.items() if meaning is None or meaning.field not in table]
