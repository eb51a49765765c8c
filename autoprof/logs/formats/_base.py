"""The interface of a log format, and the records that it reads from one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..extras import import_pandas
from ..fields import Meaning
from ..line_database import LineDatabase
from ..log_file import LogFile

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class RawRecords:
    """The records of one file under the keys of the log: a column per key, values in the units of ``fields``.

    Columns with a leading underscore are not keys: ``_n`` (line number, required), ``_rank``, ``_time`` (seconds since
    1970), ``_split`` (``train``, ``val``, …) and ``_of`` (steps of an epoch).
    """

    format_name: str
    lines: int = 0
    """Lines of the file that are not empty."""
    used_lines: int = 0
    """Lines that gave a record."""
    parts: list[pd.DataFrame] = field(default_factory=list)
    meanings: dict[str, Meaning] = field(default_factory=dict)
    unknown_units: set[str] = field(default_factory=set)
    """Keys with a meaning whose unit the log does not give."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the user about assumptions and omissions."""

    def add(self, part: pd.DataFrame, offset: int = 0) -> None:
        """Append the records of one block; ``offset`` is the number of lines before the block."""
        if not len(part):
            return
        part["_n"] = part["_n"].astype("int64") + offset
        self.parts.append(part)

    def add_meaning(self, key: str, meaning: Meaning | None, unit_known: bool = True) -> None:
        """Record the meaning of a key, and whether its unit is known. The first meaning of a key stays."""
        if meaning is not None:
            self.meanings.setdefault(key, meaning)
            if not unit_known:
                self.unknown_units.add(key)

    def to_frame(self) -> Any:
        """Return all records as one DataFrame in the order of the file."""
        pd = import_pandas()
        if not self.parts:
            return pd.DataFrame({"_n": []})
        frame = pd.concat(self.parts, ignore_index=True) if len(self.parts) > 1 else self.parts[0]
        self.parts = []  # frees memory: the parts are as large as the result
        if not frame["_n"].is_monotonic_increasing:
            frame = frame.sort_values("_n", kind="stable", ignore_index=True)
        return frame

    @property
    def skipped(self) -> int:
        """The number of lines that are not empty and gave no record."""
        return max(self.lines - self.used_lines, 0)


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """One format of training logs; a subclass implements ``score`` and ``read``."""

    name: str
    """The name in ``load_logs(reader=)``, in reports and in the documentation."""
    priority: int = 0
    """Decides between formats of equal score: the higher number wins."""

    def score(self, sample: Sequence[str]) -> float:
        """Return the number of lines of ``sample`` that are records of this format; 0 for a file of another format."""
        raise NotImplementedError

    def read(self, log_file: LogFile, database: LineDatabase) -> RawRecords:
        """Read all records of the file. ``database`` is empty and may hold one block of lines at a time."""
        raise NotImplementedError
