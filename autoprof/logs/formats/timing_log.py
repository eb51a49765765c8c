"""autoprof's ``timing.log`` and the older ``timing_{timestamp}.log``: a section per step, a line per name.

The Total of the older logger counts nested names twice, so only autoprof's Total is the step time. A log of autoprof is
recognized by its line ``other``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..fields import Meaning
from ..records import Records

_STEP: Final = re.compile(r"^Step (\d+)\b")
_TOTAL: Final = re.compile(r"^Total-+:\s*([\d.]+)ms")
_NAME: Final = re.compile(
    r"^(?P<indent>\s*(?:- )?)(?P<name>\S.*?)\s*:\s*<?(?P<ms>[\d.]+)ms(?: \(\s*<?[\d.]+%\))?(?: \[avg:\s*<?[\d.]+ms\])?"
)


def read_timing_log(lines: Sequence[str]) -> Records:
    """Read sections of steps: a column per name with its milliseconds."""
    records = Records("timing.log", weight=1e3, meanings={key: Meaning(key, 0) for key in ("step", "step_time_s")})
    row: dict[str, float] | None = None
    path: list[str] = []
    is_ruled = False
    for line in filter(str.strip, lines):
        was_ruled, is_ruled = is_ruled, set(line.strip()) == {"="}
        step, total, name = (pattern.match(line) for pattern in (_STEP, _TOTAL, _NAME))
        if step is not None and was_ruled:
            row = {"step": float(step[1])}
            records.rows.append(row)
        elif line.startswith("Timing Summary"):
            row = None
            continue
        elif row is not None and total is not None:
            if "other (ms)" in row:
                row["step_time_s"] = float(total[1]) / 1e3
            elif not records.notes:
                records.notes.append("Total is not used as the step time: it counts nested names twice")
        elif row is not None and name is not None:
            depth = (len(name["indent"]) - len(name["indent"].lstrip(" "))) // 2
            path[depth:] = [name["name"]]
            row[f"{'/'.join(path[: depth + 1])} (ms)"] = float(name["ms"])
        elif not is_ruled and " | autoprof " not in line:
            continue
        records.used_lines += 1
    return records
