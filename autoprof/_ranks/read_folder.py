"""Read the records of all ranks of a run from its folder, many ranks at a time, within a bound on memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..frame import Nanoseconds
from .left_out import LeftOut
from .own_blocks import LayoutRows, read_own_work, spans_file
from .rank_files import RankFiles
from .rank_folders import RankFolders, find_ranks
from .record import RankRecord
from .step_choice import choose_steps
from .step_heads import Layouts, StepHeads, read_heads

BATCH: Final = 32
"""Ranks read at a time."""
MAX_NUMBERS: Final = 2**25
"""Times in memory, steps × rows × ranks; above it, fewer steps are compared: the last ones."""
WAIT_AND_MODEL_ROWS: Final = 6
"""Rows that are not in the layouts: outside of spans, and the model's own by phase."""
CLOCKS_NS: Final = 600 * 10**9
"""The most by which the clocks of two machines of one run differ."""


@dataclass(frozen=True, slots=True)
class FolderRecords:
    """The records of a run's ranks in their common steps, and the list of all that is left out."""

    folder: str
    world_size: int
    records: Mapping[int, RankRecord]
    hosts: Mapping[int, str]
    recorded_steps: int
    """The steps that all of these ranks have recorded, of which some may not be read, to limit the memory."""
    left_out: tuple[LeftOut, ...]


def read_folder(files: RankFiles, progress: Callable[[int, int], None] = lambda done, of: None) -> FolderRecords:
    """Read the ranks of a run; ``progress`` gets the number of files read, and of all. Raises ``OutputError``."""
    folders = find_ranks(files)
    left_out = list(folders.left_out)
    layouts = Layouts()
    heads = _read_all_heads(files, folders, layouts, left_out, progress)
    left_out += _drop_foreign(heads)
    common, short = choose_steps({rank: one.steps for rank, one in heads.items()})
    left_out += short
    for one in short:
        if one.rank is not None:
            del heads[one.rank]
    found = [LayoutRows.of(layout) for layout in layouts.found]
    rows = len({key for one in found for key in one.all()}) + WAIT_AND_MODEL_ROWS
    most = max(MAX_NUMBERS // max(rows * len(heads), 1), 32)
    records = _read_all_own_work(files, heads, common[-most:], found, left_out, progress)
    damaged = choose_steps({rank: record.steps for rank, record in records.items()})[1]
    left_out += damaged
    for one in damaged:
        if one.rank is not None:
            del records[one.rank]
    left_out.sort(key=lambda one: (one.rank is None, one.rank or 0, one.where))
    return FolderRecords(files.folder, folders.world_size, records, folders.hosts, len(common), tuple(left_out))


def _read_all_heads(
    files: RankFiles,
    folders: RankFolders,
    layouts: Layouts,
    left_out: list[LeftOut],
    progress: Callable[[int, int], None],
) -> dict[int, StepHeads]:
    heads: dict[int, StepHeads] = {}
    ranks = list(folders.records)
    for start in range(0, len(ranks), BATCH):
        batch = ranks[start : start + BATCH]
        names = [name for rank in batch for name in folders.records[rank]]
        lines, failed = files.heads(names)
        by_rank = _split_by_rank(lines, batch)
        for rank in batch:
            own_files = tuple(name for name in folders.records[rank] if name not in failed)
            left_out += [
                LeftOut.of_rank(rank, f"{name} {failed[name]}", partly=bool(own_files))
                for name in folders.records[rank]
                if name in failed
            ]
            if not own_files:
                continue
            one = read_heads(by_rank[rank], own_files, layouts)
            left_out += _incomplete(rank, one)
            if len(one):
                heads[rank] = one
        progress(min(start + BATCH, len(ranks)), 2 * len(ranks))
    return heads


def _split_by_rank(lines: Mapping[str, Nanoseconds], ranks: list[int]) -> dict[int, dict[str, Nanoseconds]]:
    """Return the part of the columns of each rank; the lines of a file follow each other."""
    if not lines:
        return {}
    names = lines["filename"]
    begins: list[int] = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist()] if len(names) else []
    ends = [*begins[1:], len(names)]
    parts: dict[int, list[slice]] = {rank: [] for rank in ranks}
    for begin, end in zip(begins, ends, strict=True):
        parts[int(names[begin].partition("/")[0][4:])].append(slice(begin, end))
    return {
        rank: {
            key: np.concatenate([column[one] for one in slices])
            if len(slices) > 1
            else column[slices[0] if slices else slice(0, 0)]
            for key, column in lines.items()
        }
        for rank, slices in parts.items()
    }


def _incomplete(rank: int, heads: StepHeads) -> list[LeftOut]:
    """Return the lines of a rank that are not used."""
    found = []
    if heads.bad_lines:
        lines = "a line" if heads.bad_lines == 1 else f"{heads.bad_lines:,} lines"
        found.append(f"{lines} not whole, as after a kill in the middle of a write")
    if heads.foreign_lines:
        lines = "a line" if heads.foreign_lines == 1 else f"{heads.foreign_lines:,} lines"
        found.append(f"{lines} without a step and its times: of another program or version")
    if not found and not len(heads):
        found.append("recorded no step after its warm-up")
    return [LeftOut.of_rank(rank, why, partly=len(heads) > 0) for why in found]


def _drop_foreign(heads: dict[int, StepHeads]) -> list[LeftOut]:
    """Remove the ranks whose steps were recorded at another time than most ranks'."""
    if len(heads) < 2:
        return []
    firsts, lasts = (
        np.array([getattr(one, key) for one in heads.values()]) for key in ("first_unix_ns", "last_unix_ns")
    )
    first, last = int(np.sort(firsts)[len(firsts) // 2]), int(np.sort(lasts)[len(lasts) // 2])
    foreign = [
        rank
        for rank, one in heads.items()
        if one.last_unix_ns < first - CLOCKS_NS or one.first_unix_ns > last + CLOCKS_NS
    ]
    for rank in foreign:
        del heads[rank]
    return [LeftOut.of_rank(rank, "recorded at another time than most ranks: of another run") for rank in foreign]


def _read_all_own_work(
    files: RankFiles,
    heads: Mapping[int, StepHeads],
    steps: Nanoseconds,
    layouts: list[LayoutRows],
    left_out: list[LeftOut],
    progress: Callable[[int, int], None],
) -> dict[int, RankRecord]:
    records: dict[int, RankRecord] = {}
    ranks = list(heads)
    for start in range(0, len(ranks), BATCH):
        batch = ranks[start : start + BATCH]
        names = {rank: [spans_file(name) for name in heads[rank].files] for rank in batch}
        needed = [name for rank in batch if heads[rank].block.max(initial=-1) >= 0 for name in names[rank]]
        blobs, failed = files.blobs(needed)
        for rank in batch:
            own_blobs = {name: blobs[name] for name in names[rank] if name in blobs}
            record, lost = read_own_work(heads[rank], steps, own_blobs, layouts)
            if lost:
                reasons = [f"{name} {failed[name]}" for name in names[rank] if name in failed]
                why = reasons[0] if reasons else "their block in spans.bin is damaged or cut"
                left_out.append(
                    LeftOut.of_rank(rank, f"{lost:,} steps without times: {why}", partly=len(record.steps) > 0)
                )
            if len(record.steps):
                records[rank] = record
        progress(len(ranks) + min(start + BATCH, len(ranks)), 2 * len(ranks))
    return records
