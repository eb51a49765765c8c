"""The logs of ``global_timer``: ``[RANK 0] forward, start=…, end=…, cpu_dur=…s, cuda_dur=…ms``, a step per dump.

The rank is the one in the line, not the one in the file name. An interval that a later dump repeats counts once.
``autoprof.compat.timer_logs`` reads the same records as single intervals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
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
COPIES_NOTE: Final = "cuda_dur equals cpu_dur in every record, so it is host time: no device time was measured"


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


def count_events(line: str) -> int:
    """Return how many events a line begins, complete or not."""
    return max(line.count("[RANK "), len(re.findall(rf", start={_NUMBER}, end=", line)))


def ranks_of_copies(records: Collection[TimerRecord]) -> set[int]:
    """Return the ranks whose device time is the host time in every record: no device was measured.

    Some timers write it without a GPU. Measured times of a device never equal the host's to the last digit.
    """
    equal: dict[int, list[TimerRecord]] = {}
    different = set()
    for one in records:
        if one.device_ms is None:
            continue
        # Both durations are rounded to a microsecond.
        if abs(one.device_ms - one.host_ms) <= 0.0011:
            equal.setdefault(one.rank, []).append(one)
        else:
            different.add(one.rank)
    # Shorter times have too few digits: they may be equal by chance.
    return {
        rank for rank, ones in equal.items() if rank not in different and sum(one.host_ms >= 0.05 for one in ones) >= 3
    }


def _parse_interval(match: re.Match[str]) -> TimerRecord | None:
    start, end, host = (float(match[key]) for key in ("start", "end", "host"))
    device = float(match["device"]) if match["device"] not in ("nan", "None", "N/A") else None
    if not all(map(math.isfinite, (start, end, host, device or 0.0))) or end < start or host < 0:
        return None
    return TimerRecord(int(match["rank"]), match["name"].strip(), start, end, round(1000 * host, 6), device)


@dataclass(frozen=True, kw_only=True)
class GlobalTimerLog(LogFormat):
    """A row per dump and rank, a column per name: milliseconds on the device if all were measured, else on the host."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines with an interval."""
        return 1.2 * sum(any(find_intervals(line)) for line in sample)

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file line by line: a record is a dump of many lines."""
        raw, seen = RawRecords(self.name), dict[TimerRecord, tuple[int, int]]()
        dump = repeated = lost = 0
        for line in filter(str.strip, log_file.lines()):
            raw.lines += 1
            if "DUMP START" in line:
                dump += 1
                raw.used_lines += 1
                continue
            found = [one for one in find_intervals(line) if one is not None]
            raw.used_lines += bool(found)
            lost += count_events(line) - len(found)
            repeated += sum(one in seen for one in found)
            seen |= {one: (dump, raw.lines) for one in found if one not in seen}
        copied = ranks_of_copies(seen)
        hosts = {one.name for one in seen if one.device_ms is None or one.rank in copied}
        for row in _to_rows(seen, hosts):
            raw.add_row(row)
        raw.add_meaning("step", Meaning("step", 0))
        if repeated:
            raw.notes.append(f"intervals repeated by a later dump, counted once: {repeated}")
        if lost:
            raw.notes.append(f"events that are incomplete or contradict themselves, not used: {lost}")
        if copied:
            raw.notes.append(COPIES_NOTE)
        if hosts:
            raw.notes.append(f"host time, because a record has no device time: {', '.join(sorted(hosts))}")
        return raw


def _to_rows(seen: Mapping[TimerRecord, tuple[int, int]], hosts: Collection[str]) -> list[dict[str, float]]:
    """Return a row per dump and rank; the names ``hosts`` have host time, so that no column mixes two clocks."""
    rows: dict[tuple[int, int], dict[str, float]] = {}
    dumps_of_rank: dict[int, int] = {}
    for one, (dump, number) in seen.items():
        if (one.rank, dump) not in rows:
            dumps_of_rank[one.rank] = dumps_of_rank.get(one.rank, 0) + 1
            rows[one.rank, dump] = {"_n": number, "_rank": one.rank, "step": dumps_of_rank[one.rank]}
        row, column = rows[one.rank, dump], f"{one.name} (ms)"
        time = one.host_ms if one.name in hosts or one.device_ms is None else one.device_ms
        row[column] = row.get(column, 0.0) + time
    return list(rows.values())


FORMAT: Final = GlobalTimerLog(name="global timer", priority=12)
