"""The logs of ``global_timer``: ``[RANK 0] forward, start=…, end=…, cpu_dur=…s, cuda_dur=…ms``, a step per dump.

The rank is the one in the line, not the one in the file name. An interval that a later dump repeats counts once.
``autoprof.compat.timer_logs`` reads the same records as single intervals.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ...base.names import shorten, visible
from ..fields import Meaning
from ..records import Records

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


class TimerRecords:
    """The records of one or several logs, and counts of everything else in them."""

    def __init__(self) -> None:
        self.seen: dict[TimerRecord, int] = {}
        """Each record with the number of its dump; one that a later dump repeats is there once."""
        self.lines = self.dumps = self.skipped = self.repeated = 0
        self.first_skipped = ""
        """The first line with an event that is incomplete or contradicts itself, or with none."""

    def add(self, log: str, lines: Sequence[str]) -> None:
        """Read a log. A record may follow a prefix, and a line may have several: processes mix their lines."""
        for number, line in enumerate(lines, 1):
            text = line.strip()
            self.dumps += "DUMP START" in text
            if re.fullmatch(r"[= ]*(DUMP START)?[= ]*", text):
                continue
            self.lines += 1
            found = [one for one in map(_parse_interval, _RECORD.finditer(text)) if one is not None]
            self.repeated += sum(one in self.seen for one in found)
            self.seen |= {one: self.dumps for one in found if one not in self.seen}
            events = max(text.count("[RANK "), len(re.findall(rf", start={_NUMBER}, end=", text)))
            if not found or events > len(found):
                self.skipped += 1
                quoted = f"{log}:{number} '{shorten(visible(text), 60)}'"
                self.first_skipped = self.first_skipped or quoted


def ranks_of_copies(records: Iterable[TimerRecord]) -> set[int]:
    """Return the ranks whose device time is the host time in every record: no device was measured.

    Some timers write it without a GPU. Measured times of a device never equal the host's to the last digit.
    """
    equal: dict[int, list[bool]] = {}
    for one in records:
        # Both durations are rounded to a microsecond; shorter times may be equal by chance.
        if one.device_ms is not None and (one.host_ms >= 0.05 or abs(one.device_ms - one.host_ms) > 0.0011):
            equal.setdefault(one.rank, []).append(abs(one.device_ms - one.host_ms) <= 0.0011)
    return {rank for rank, ones in equal.items() if all(ones) and len(ones) >= 3}


def _parse_interval(match: re.Match[str]) -> TimerRecord | None:
    start, end, host = (float(match[key]) for key in ("start", "end", "host"))
    device = float(match["device"]) if match["device"] not in ("nan", "None", "N/A") else None
    if not all(map(math.isfinite, (start, end, host, device or 0.0))) or end < start or host < 0:
        return None
    return TimerRecord(int(match["rank"]), match["name"].strip(), start, end, round(1000 * host, 6), device)


def read_timer_log(lines: Sequence[str]) -> Records:
    """Read a row per dump and rank; of each name the milliseconds on the host, and on the device if measured."""
    found = TimerRecords()
    found.add("", lines)
    copied = ranks_of_copies(found.seen)
    records = Records("global timer", weight=1e3, rows=_to_rows(found.seen, copied))
    records.used_lines = found.lines - found.skipped
    records.add_meaning("step", Meaning("step", 0))
    if found.repeated:
        records.notes.append(f"intervals repeated by a later dump, counted once: {found.repeated}")
    if copied:
        records.notes.append(COPIES_NOTE)
    return records


def _to_rows(seen: Mapping[TimerRecord, int], copied: Collection[int]) -> list[dict[str, float]]:
    """Return a row per dump and rank; a name with a record of no device time has none in that dump."""
    rows: dict[tuple[int, int], dict[str, float]] = {}
    dumps_of_rank: Counter[int] = Counter()
    for one, dump in seen.items():
        if (one.rank, dump) not in rows:
            dumps_of_rank[one.rank] += 1
            rows[one.rank, dump] = {"_rank": one.rank, "step": dumps_of_rank[one.rank]}
        row = rows[one.rank, dump]
        device_ms = math.nan if one.device_ms is None or one.rank in copied else one.device_ms
        for column, ms in ((f"{one.name} (ms)", one.host_ms), (f"{one.name} device (ms)", device_ms)):
            row[column] = row.get(column, 0.0) + ms
    return list(rows.values())
