"""What a reader is, and what it hands on: raw columns in the units of ``fields``, and the count of what it left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..engine import Engine, need_pandas
from ..fields import Meaning
from ..source import Source

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Raw:
    """The records of one file in its own words: a column a key, and ``_n``, ``_rank``, ``_time``, ``_split``."""

    reader: str
    lines: int = 0
    parts: list[pd.DataFrame] = field(default_factory=list)
    meanings: dict[str, Meaning] = field(default_factory=dict)
    unknown_units: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    used_lines: int = 0

    def add(self, part: pd.DataFrame, offset: int = 0) -> None:
        """Take the records of one block, whose lines begin after ``offset`` lines of the file."""
        if not len(part):
            return
        part["_n"] = part["_n"].astype("int64") + offset
        self.parts.append(part)

    def learn(self, key: str, meaning: Meaning | None, known: bool = True) -> None:
        """Remember what a key means, and whether its unit is known."""
        if meaning is not None:
            self.meanings.setdefault(key, meaning)
            if not known:
                self.unknown_units.add(key)

    def frame(self) -> Any:
        """Return all records in the order of the file."""
        pd = need_pandas()
        if not self.parts:
            return pd.DataFrame({"_n": []})
        whole = pd.concat(self.parts, ignore_index=True) if len(self.parts) > 1 else self.parts[0]
        self.parts = []
        if not whole["_n"].is_monotonic_increasing:
            whole = whole.sort_values("_n", kind="stable", ignore_index=True)
        return whole

    @property
    def skipped(self) -> int:
        """Return the lines that are not empty and gave no record."""
        return max(self.lines - self.used_lines, 0)


class Reader(Protocol):
    """One kind of log."""

    @property
    def name(self) -> str:
        """Say what kind, in a word."""
        ...

    def score(self, sample: Sequence[str]) -> float:
        """Return how many lines of the sample are records of this kind; 0 for a file of another."""
        ...

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the whole file."""
        ...
