"""Read the last steps of the ranks of a run from the records in its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ..base.storage.records import Frames
from ..base.storage.runs import read_json, shared_folder
from ..errors import OutputError
from .record import OwnWork, RankRecord

MAX_STEPS: Final = 256
"""Steps read of each rank, the last ones."""


class LeftOut(NamedTuple):
    """A rank without usable records, and the reason."""

    rank: int
    why: str


@dataclass(frozen=True, slots=True)
class FolderRecords:
    """The last steps of a run's ranks, and the ranks that are left out."""

    folder: str
    world_size: int
    records: Mapping[int, RankRecord]
    left_out: tuple[LeftOut, ...]


def read_folder(folder: Path, world_size: int | None = None) -> FolderRecords:
    """Read the ranks of a run. Raises ``OutputError`` for a folder without any."""
    names = (re.fullmatch(r"rank(0|[1-9][0-9]{0,8})", path.name) for path in folder.glob("rank*"))
    ranks = {int(found[1]) for found in names if found}
    if not ranks:
        raise OutputError(
            f"{folder}: has no folders of ranks; allowed: the folder of a run, which contains rank0, rank1, …"
        )
    world_size = max(world_size or max(_recorded_size(folder, rank) for rank in ranks), max(ranks) + 1)
    records: dict[int, RankRecord] = {}
    left_out = []
    # Steps read of all ranks together, some 100 MB of times; of more ranks, fewer steps each.
    steps = max(min(MAX_STEPS, 2**15 // len(ranks)), 32)
    for rank in range(world_size):
        if rank not in ranks:
            left_out.append(LeftOut(rank, "has no folder: it is on another machine, or missing"))
            continue
        try:
            record = read_record(folder / f"rank{rank}" / "steps.jsonl", steps)
        except OutputError:
            left_out.append(LeftOut(rank, "has no readable steps.jsonl"))
            continue
        if len(record.steps):
            records[rank] = record
        else:
            left_out.append(LeftOut(rank, "has no readable step after its warm-up"))
    return FolderRecords(str(folder), world_size, records, tuple(left_out))


def _recorded_size(folder: Path, rank: int) -> int:
    """Return the number of ranks in a rank's ``run.json``; 0 where it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(read_json(shared_folder(folder, rank) / "run.json")["world_size"])
    return 0


def read_record(path: Path, steps: int = MAX_STEPS) -> RankRecord:
    """Read the last ``steps`` of a record without warm-up. Raises ``OutputError`` where it cannot be read."""
    work = OwnWork(steps)
    for frame in Frames(path).last(steps):
        work.add(frame)
    return work.record()
