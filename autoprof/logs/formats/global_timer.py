"""The logs of ``global_timer``: ``[RANK 0] forward, start=…, end=…, cpu_dur=…s, cuda_dur=…ms``, a step per dump.

The rank is the one in the line, not the one in the file name. An interval that a later dump repeats counts once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..extras import import_pandas
from ..fields import Meaning
from ..line_database import LineDatabase
from ..log_file import LogFile
from ._base import LogFormat, RawRecords

_INTERVAL: Final = re.compile(
    r"\[RANK (?P<rank>\d+)\] (?P<name>.+?), start=(?P<start>[\d.]+), end=(?P<end>[\d.]+), cpu_dur=(?P<host>[\d.]+)s"
    r"(?:, cuda_dur=(?P<device>[\d.]+)ms)?"
)
_DUMP: Final = re.compile(r"DUMP START")


@dataclass(frozen=True, kw_only=True)
class GlobalTimerLog(LogFormat):
    """A row per dump and rank, a column per name: its milliseconds on the device if measured, else on the host."""

    def score(self, sample: Sequence[str]) -> float:
        """Count the intervals."""
        return 1.2 * sum(_INTERVAL.search(line) is not None for line in sample)

    def read(self, log_file: LogFile, database: LineDatabase) -> RawRecords:
        """Read the file line by line: a record is a dump of many lines, so the database is not used."""
        raw = RawRecords(self.name)
        rows: dict[tuple[int, int], dict[str, float]] = {}
        seen: set[tuple[str, ...]] = set()
        dumps_of_rank: dict[int, int] = {}
        last_dump: dict[int, int] = {}
        dump = repeated = 0
        for line in filter(str.strip, log_file.lines()):
            raw.lines += 1
            if _DUMP.search(line):
                dump += 1
                raw.used_lines += 1
                continue
            interval = _INTERVAL.search(line)
            if interval is None:
                continue
            raw.used_lines += 1
            identity = interval.group("rank", "name", "start")
            if identity in seen:
                repeated += 1
                continue
            seen.add(identity)
            rank = int(interval["rank"])
            if last_dump.get(rank) != dump:
                last_dump[rank] = dump
                dumps_of_rank[rank] = dumps_of_rank.get(rank, 0) + 1
            step = dumps_of_rank[rank]
            row = rows.setdefault((rank, step), {"_n": raw.lines, "_rank": rank, "step": step})
            ms = float(interval["device"]) if interval["device"] else 1e3 * float(interval["host"])
            key = f"{interval['name']} (ms)"
            row[key] = row.get(key, 0.0) + ms
        if repeated:
            raw.notes.append(f"intervals repeated by a later dump, counted once: {repeated}")
        raw.add_meaning("step", Meaning("step", 0))
        if rows:
            raw.add(import_pandas().DataFrame(list(rows.values())))
        return raw


FORMAT: Final = GlobalTimerLog(name="global timer", priority=12)
