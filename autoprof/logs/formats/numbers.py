"""Files of named numbers without a counter: a table, JSON lines, or lines of ``name=1 other=2``.

Read only on request (``--reader numbers``), because they may be a data set. No name is taken for a loss or a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..log_file import LogFile
from ._base import LogFormat, RawRecords
from ._json import JsonFormat
from .csv import CsvFormat
from .text import PlainText

_KINDS: Final[tuple[LogFormat, ...]] = (
    JsonFormat(name="numbers", any_names=True),
    CsvFormat(name="numbers", any_names=True),
    PlainText(name="numbers", any_names=True),
)


@dataclass(frozen=True, kw_only=True)
class NumbersFormat(LogFormat):
    """Records of numbers whose names are not known."""

    def score(self, sample: Sequence[str]) -> float:
        """Return 0: the format is never detected."""
        return 0.0

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file by the kind with the most records."""
        found = [kind.read(log_file) for kind in _KINDS]
        return max(found, key=lambda raw: raw.used_lines)


FORMAT: Final = NumbersFormat(name="numbers", priority=-30)
