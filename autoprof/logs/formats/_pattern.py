"""The format of a user's own regular expression: its named groups are the columns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import AutoprofError
from ._text import TextFormat


@dataclass(frozen=True, kw_only=True)
class PatternFormat(TextFormat):
    """Lines that match a regular expression with named groups; other lines are skipped."""

    name: str = "pattern"
    record: str
    reads_names: bool = False

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.record).groupindex
        except re.error as error:
            raise AutoprofError(f"pattern: {self.record!r} is not a regular expression: {error}") from error
        if not groups:
            raise AutoprofError(
                f"pattern: {self.record!r} has no named group; allowed: groups such as "
                r"(?P<step>\d+) and (?P<loss>[\d.]+)"
            )
