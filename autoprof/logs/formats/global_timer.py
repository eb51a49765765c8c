"""The logs of ``global_timer``: ``[RANK 0] forward, start=…, end=…, cpu_dur=…s, cuda_dur=…ms``, a step per dump.

The rank is the one in the line, not the one in the file name. An interval that a later dump repeats counts once.
``autoprof.compat.timer_logs`` reads the same records as single intervals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
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
_BEGINNING: Final = re.compile(rf", start={_NUMBER}, end=")
_DUMP: Final = re.compile(r"DUMP START")
_ROUNDING_MS: Final = 0.0011
"""Of ``cpu_dur`` and ``cuda_dur``, which are written to a microsecond each."""
_MIN_COPIES: Final = 3
_MIN_COPY_MS: Final = 0.05
"""Shorter times have too few digits: they may be equal by chance."""
_MAX_NAMES: Final = 5
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
    return max(line.count("[RANK "), len(_BEGINNING.findall(line)))


def ranks_of_copies(records: Collection[TimerRecord]) -> set[int]:
    """Return the ranks whose device time is the host time in every record: no device was measured.

    Some timers write it without a GPU. Measured times of a device never equal the host's to the last digit.
    """
    equal: dict[int, list[TimerRecord]] = {}
    different = set()
    for one in records:
        if one.device_ms is None:
            continue
        if abs(one.device_ms - one.host_ms) <= _ROUNDING_MS:
            equal.setdefault(one.rank, []).append(one)
        else:
            different.add(one.rank)
    return {
        rank
        for rank, ones in equal.items()
        if rank not in different and sum(one.host_ms >= _MIN_COPY_MS for one in ones) >= _MIN_COPIES
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
        raw, dumps = RawRecords(self.name), _Dumps()
        for line in filter(str.strip, log_file.lines()):
            raw.lines += 1
            if _DUMP.search(line):
                dumps.current += 1
                raw.used_lines += 1
                continue
            raw.used_lines += dumps.add(line, raw.lines)
        raw.notes += dumps.notes()
        raw.add_meaning("step", Meaning("step", 0))
        for row in dumps.to_rows():
            raw.add_row(row)
        return raw


class _Dumps:
    """The intervals of each dump and rank, added up by name."""

    def __init__(self) -> None:
        self.current = 0
        self._rows: dict[tuple[int, int], dict[str, float]] = {}
        self._times: dict[tuple[int, int], dict[str, tuple[float, float | None]]] = {}
        """By rank and step, then by name: milliseconds of the host, and of the device if all were measured."""
        self._seen: set[TimerRecord] = set()
        self._dumps_of_rank: dict[int, int] = {}
        self._last_dump: dict[int, int] = {}
        self._repeated = self._lost = 0

    def add(self, line: str, number: int) -> bool:
        """Add the intervals of a line; return whether it has one."""
        found = find_intervals(line)
        intervals = [one for one in found if one is not None]
        self._lost += count_events(line) - len(intervals)
        for one in intervals:
            if one in self._seen:
                self._repeated += 1
                continue
            self._seen.add(one)
            if self._last_dump.get(one.rank) != self.current:
                self._last_dump[one.rank] = self.current
                self._dumps_of_rank[one.rank] = self._dumps_of_rank.get(one.rank, 0) + 1
            place = one.rank, self._dumps_of_rank[one.rank]
            self._rows.setdefault(place, {"_n": number, "_rank": one.rank, "step": place[1]})
            times = self._times.setdefault(place, {})
            host, device = times.get(one.name, (0.0, 0.0))
            both = None if device is None or one.device_ms is None else device + one.device_ms
            times[one.name] = host + one.host_ms, both
        return bool(intervals)

    def _host_names(self) -> list[str]:
        """Return the names of which an interval has no device time: all their times are those of the host."""
        copied = ranks_of_copies(self._seen)
        names = (one.name for one in self._seen if one.device_ms is None or one.rank in copied)
        return sorted(set(names))

    def to_rows(self) -> list[dict[str, float]]:
        """Return a row per dump and rank. A column never mixes device time with host time."""
        hosts = set(self._host_names())
        for place, times in self._times.items():
            for name, (host, device) in times.items():
                self._rows[place][f"{name} (ms)"] = host if name in hosts or device is None else device
        return list(self._rows.values())

    def notes(self) -> list[str]:
        """Return sentences about repeated and lost intervals, and about host times."""
        notes = []
        if self._repeated:
            notes.append(f"intervals repeated by a later dump, counted once: {self._repeated}")
        if self._lost:
            notes.append(f"events that are incomplete or contradict themselves, not used: {self._lost}")
        if ranks_of_copies(self._seen):
            notes.append(COPIES_NOTE)
        hosts = self._host_names()
        if hosts:
            shown = ", ".join(hosts[:_MAX_NAMES]) + (
                f" and {len(hosts) - _MAX_NAMES} more" if hosts[_MAX_NAMES:] else ""
            )
            notes.append(f"host time, because a record has no device time: {shown}")
        return notes


FORMAT: Final = GlobalTimerLog(name="global timer", priority=12)
