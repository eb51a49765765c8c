"""Read what timing loggers wrote: autoprof's records, and the logs of the original tool."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from .._reports.log import RULE
from .._storage.runs import Frames
from .._units import NS_PER_MS
from ..errors import OutputError
from .decode import read_lines

logger = logging.getLogger("autoprof")

_STEP: Final = re.compile(r"Step (\d+)\s*")
_SUMMARY: Final = re.compile(r"Timing Summary \(")
_LINE: Final = re.compile(
    r"(?P<indent> *)(?P<dash>- )?(?P<name>.*?) *: +(?P<ms>\d+(?:\.\d+)?)ms"
    r"(?: \( *(?P<percent>\d+(?:\.\d+)?)%\))?(?: \[avg: *\d+(?:\.\d+)?ms\])?(?P<behind> \(sum of parts\)| in .*)?"
)
LONGEST: Final = 1000
"""Characters of a line of a log; on a longer one the pattern's open ends would take their square."""
_TOTAL: Final = re.compile(r"Total-+: +(\d+(?:\.\d+)?)ms")
_RANK: Final = re.compile(r"timing_\d+(?:_\d+)?(?:_rank(\d+))?\.(?:log|jsonl)")


class Timing(NamedTuple):
    """A name's time in one step, the length of that step, and the calls that it is the sum of."""

    step: int
    name: str
    ms: float
    calls: int
    total_ms: float


class TimingRecords:
    """The timings of one file, read anew at each iteration. ``skipped`` counts lines that are none, when it is over."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.skipped = 0
        if not self.path.is_file():
            raise OutputError(f"{self.path}: there is no such file; allowed: a timing_….log or a timing_….jsonl")

    @property
    def rank(self) -> int:
        """The rank in the file's name; 0 where it has none."""
        match = _RANK.fullmatch(self.path.name)
        return int(match[1]) if match and match[1] else 0

    def __iter__(self) -> Iterator[Timing]:
        return self._records() if self.path.suffix == ".jsonl" else self._log()

    def _records(self) -> Iterator[Timing]:
        frames = Frames(self.path)
        for frame in frames:
            total_ms = frame.step_ns / NS_PER_MS
            for name, calls, ns in zip(frame.layout.names, frame.layout.calls, frame.total_ns.tolist(), strict=True):
                yield Timing(frame.step, name, ns / NS_PER_MS, calls, total_ms)
        self.skipped = frames.bad_lines
        self._say()

    def _log(self) -> Iterator[Timing]:
        """Read a log of either logger; a section that breaks off, or is no step's, is skipped."""
        self.skipped = 0
        step: int | None = None
        found: list[tuple[str, float]] = []
        above: list[str] = []
        summed = False  # in the summary at the end
        for whole in read_lines(self.path):
            line = whole if len(whole) <= LONGEST else "?"
            number, total, match = _STEP.fullmatch(line), _TOTAL.fullmatch(line), _LINE.fullmatch(line)
            if number or _SUMMARY.match(line):
                self.skipped += len(found)
                step, found, above = int(number[1]) if number else None, [], []
                summed = number is None
            elif total and step is not None:
                for name, ms in found:
                    yield Timing(step, name, ms, 1, float(total[1]))
                found = []
            elif match and step is not None:
                depth = len(match["indent"]) // 2 if match["dash"] else 0
                del above[depth:]
                above.append(match["name"])
                if match["behind"] != " (sum of parts)" and (match["name"] != "other" or "[avg" in line):
                    found.append(("/".join(above), float(match["ms"])))
            elif line.strip() and line != RULE and not summed:
                self.skipped += 1
        self.skipped += len(found)
        self._say()

    def _say(self) -> None:
        if self.skipped:
            logger.warning(f"{self.path}: {self.skipped} lines are no timings of a whole step and were skipped")


def newest_by_rank(log_dir: str | os.PathLike[str]) -> dict[int, Path]:
    """Return each rank's newest records in a folder. Raises ``OutputError`` where there are none."""
    found: dict[int, Path] = {}
    for path in sorted(Path(log_dir).glob("timing_*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        match = _RANK.fullmatch(path.name)
        if match:
            found[int(match[1] or 0)] = path
    if not found:
        raise OutputError(f"{log_dir}: holds no timing_….jsonl; allowed: the log_dir of a TimingLogger")
    return dict(sorted(found.items()))
