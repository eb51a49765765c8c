"""Dumps of the global timer: ``[RANK 0] forward, start=…, end=…, cpu_dur=…s, cuda_dur=…ms``, a step a dump.

The rank is the line's own, whatever the file is called; an event that a later dump repeats is counted once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..engine import Engine, need_pandas
from ..fields import Meaning
from ..source import Source
from .base import Raw

_EVENT: Final = re.compile(
    r"\[RANK (?P<rank>\d+)\] (?P<name>.+?), start=(?P<start>[\d.]+), end=(?P<end>[\d.]+), cpu_dur=(?P<cpu>[\d.]+)s"
    r"(?:, cuda_dur=(?P<cuda>[\d.]+)ms)?"
)
_DUMP: Final = re.compile(r"DUMP START")


@dataclass(frozen=True)
class GlobalTimer:
    """A column for each name: its ms between two dumps, on the device where that was measured, else on the host."""

    name: str = "global timer"

    def score(self, sample: Sequence[str]) -> float:
        """Count the events."""
        return 1.2 * sum(_EVENT.search(line) is not None for line in sample)

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the file line by line; a dump is many lines, so the engine does not serve here."""
        raw = Raw(self.name)
        rows: dict[tuple[int, int], dict[str, float]] = {}
        seen: set[tuple[str, ...]] = set()
        dumps: dict[int, int] = {}
        dump = repeated = 0
        last: dict[int, int] = {}
        for block in source.blocks():
            for line in filter(str.strip, block.split("\n")):
                raw.lines += 1
                if _DUMP.search(line):
                    dump += 1
                    raw.used_lines += 1
                    continue
                event = _EVENT.search(line)
                if event is None:
                    continue
                raw.used_lines += 1
                rank = int(event["rank"])
                if event.group("rank", "name", "start") in seen:
                    repeated += 1
                    continue
                seen.add(event.group("rank", "name", "start"))
                if last.get(rank) != dump:
                    last[rank] = dump
                    dumps[rank] = dumps.get(rank, 0) + 1
                row = rows.setdefault((rank, dumps[rank]), {"_n": raw.lines, "_rank": rank, "step": dumps[rank]})
                key = f"{event['name']} (ms)"
                row[key] = row.get(key, 0.0) + (float(event["cuda"]) if event["cuda"] else 1e3 * float(event["cpu"]))
        if repeated:
            raw.notes.append(f"{repeated} events that a later dump repeats: counted once")
        raw.learn("step", Meaning("step", 0))
        if rows:
            raw.add(need_pandas().DataFrame(list(rows.values())))
        return raw
