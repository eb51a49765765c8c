"""autoprof's ``timing.log`` and the older ``timing_{timestamp}.log``: a section per step, a line per name.

The Total of the older logger counts nested names twice, so only autoprof's Total is the step time. A log of autoprof is
recognized by its line ``other``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..fields import Meaning
from ..log_file import LogFile
from ._base import LogFormat, RawRecords

_STEP: Final = re.compile(r"^Step (\d+)\b")
_NAME: Final = re.compile(
    r"^(?P<indent>\s*(?:- )?)(?P<name>\S.*?)\s*:\s*<?(?P<ms>[\d.]+)ms(?: \(\s*<?[\d.]+%\))?(?: \[avg:\s*<?[\d.]+ms\])?"
)


@dataclass(frozen=True, kw_only=True)
class TimingLog(LogFormat):
    """Sections of steps: a column per name with its milliseconds. The records have autoprof's other values."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines with names if there is a section."""
        sections = any(
            _STEP.match(line) is not None and at > 0 and set(sample[at - 1].strip()) == {"="}
            for at, line in enumerate(sample)
        )
        return 1.2 * sum(_NAME.match(line) is not None for line in sample) if sections else 0.0

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file line by line: a record is a section."""
        raw = RawRecords(self.name)
        row: dict[str, float] | None = None
        path: list[str] = []
        for n, line in enumerate(log_file.lines(), 1):
            if not line.strip():
                continue
            raw.lines += 1
            step = _STEP.match(line)
            if step is not None:
                row = {"_n": n, "step": float(step[1])}
                raw.rows.append(row)
                raw.used_lines += 1
            elif line.startswith("Timing Summary"):
                row = None
            elif set(line.strip()) == {"="} or (row is not None and _read_line(line, row, path, raw)):
                raw.used_lines += 1
        raw.meanings |= {key: Meaning(key, 0) for key in ("step", "step_time_s")}
        return raw


def _read_line(line: str, row: dict[str, float], path: list[str], raw: RawRecords) -> bool:
    """Add the values of a line to the row of its step; return whether it has any."""
    total = re.match(r"^Total-+:\s*(?P<ms>[\d.]+)ms", line)
    if total is not None:
        if row.get("other (ms)") is not None:
            row["step_time_s"] = float(total["ms"]) / 1e3
        elif not raw.notes:
            raw.notes.append("Total is not used as the step time: it counts nested names twice")
        return True
    name = _NAME.match(line)
    if name is not None:
        depth = (len(name["indent"]) - len(name["indent"].lstrip(" "))) // 2
        path[depth:] = [name["name"]]
        row[f"{'/'.join(path[: depth + 1])} (ms)"] = float(name["ms"])
        return True
    return " | autoprof " in line
