"""The logs of ``global_timer``: ``[RANK 0] forward, start=…, end=…, cpu_dur=…s, cuda_dur=…ms``, a step per dump.

The rank is the one in the line, not the one in the file name. An interval that a later dump repeats counts once.
``autoprof.compat.timer_logs`` reads the same records as single intervals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..fields import Meaning
from ..log_file import LogFile
from ._base import LogFormat, RawRecords

_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_RECORD: Final = re.compile(
    rf"\[RANK (?P<rank>\d{{1,9}})\] (?P<name>(?:(?!\[RANK ).)*?), start=(?P<start>{_NUMBER}), end=(?P<end>{_NUMBER}), "
    rf"cpu_dur=(?P<host>{_NUMBER})s, cuda_dur=(?P<device>{_NUMBER}(?=ms)|nan|None|N/A)(?:ms)?(?![\w.])"
)
_DUMP: Final = re.compile(r"DUMP START")


class TimerRecord(NamedTuple):
    """One record: the ends in Unix seconds, the durations in milliseconds."""

    rank: int
    name: str
    start_s: float
    end_s: float
    host_ms: float
    device_ms: float | None
    """None if no device time was measured."""


def find_intervals(line: str) -> list[TimerRecord | None]:
    """Return the interval of each record in a line; None for a record with impossible times.

    A record may follow a prefix, and a line may have several: processes that share a file mix their lines.
    """
    return [_parse_interval(match) for match in _RECORD.finditer(line)]


def _parse_interval(match: re.Match[str]) -> TimerRecord | None:
    start, end, host = (float(match[key]) for key in ("start", "end", "host"))
    device = float(match["device"]) if match["device"] not in ("nan", "None", "N/A") else None
    if not all(map(math.isfinite, (start, end, host, device or 0.0))) or end < start or host < 0:
        return None
    return TimerRecord(int(match["rank"]), match["name"].strip(), start, end, round(1000 * host, 6), device)


@dataclass(frozen=True, kw_only=True)
class GlobalTimerLog(LogFormat):
    """A row per dump and rank, a column per name: its milliseconds on the device if measured, else on the host."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines with an interval."""
        return 1.2 * sum(any(find_intervals(line)) for line in sample)

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file line by line: a record is a dump of many lines."""
        raw = RawRecords(self.name)
        rows: dict[tuple[int, int], dict[str, float]] = {}
        seen: set[TimerRecord] = set()
        dumps_of_rank: dict[int, int] = {}
        last_dump: dict[int, int] = {}
        dump = repeated = 0
        for line in filter(str.strip, log_file.lines()):
            raw.lines += 1
            if _DUMP.search(line):
                dump += 1
                raw.used_lines += 1
                continue
            intervals = [one for one in find_intervals(line) if one is not None]
            raw.used_lines += bool(intervals)
            for one in intervals:
                if one in seen:
                    repeated += 1
                    continue
                seen.add(one)
                if last_dump.get(one.rank) != dump:
                    last_dump[one.rank] = dump
                    dumps_of_rank[one.rank] = dumps_of_rank.get(one.rank, 0) + 1
                step = dumps_of_rank[one.rank]
                row = rows.setdefault((one.rank, step), {"_n": raw.lines, "_rank": one.rank, "step": step})
                ms = one.host_ms if one.device_ms is None else one.device_ms
                row[f"{one.name} (ms)"] = row.get(f"{one.name} (ms)", 0.0) + ms
        if repeated:
            raw.notes.append(f"intervals repeated by a later dump, counted once: {repeated}")
        raw.add_meaning("step", Meaning("step", 0))
        if rows:
            raw.add_rows(list(rows.values()))
        return raw


FORMAT: Final = GlobalTimerLog(name="global timer", priority=12)
