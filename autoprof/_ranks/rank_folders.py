"""Which folders of a run are its ranks': by their names and their ``run.json``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import OutputError
from .left_out import LeftOut
from .rank_files import RankFiles

MAX_RANKS: Final = 2**20
_FILE: Final = re.compile(r"(rank[^/]*)/([^/]+)")
_RANK: Final = re.compile(r"rank(0|[1-9][0-9]{0,8})")
_LINES: Final = re.compile(r"steps(?:\.([1-9][0-9]{0,8}))?\.jsonl")


@dataclass(frozen=True, slots=True)
class RankFolders:
    """The ranks of a run with the files of their records, in order, and the folders that are left out."""

    world_size: int
    records: Mapping[int, tuple[str, ...]]
    hosts: Mapping[int, str]
    left_out: tuple[LeftOut, ...]


def find_ranks(files: RankFiles) -> RankFolders:
    """List the ranks of the run. Raises ``OutputError`` for a folder without any."""
    names = files.names()
    by_folder: dict[str, list[str]] = {}
    for name in names:
        if found := _FILE.fullmatch(name):
            by_folder.setdefault(found[1], []).append(found[2])
    if not by_folder:
        raise OutputError(
            f"{files.folder}: has no folders of ranks; allowed: the folder of a run, which contains rank0, rank1, …"
        )
    left_out = [
        LeftOut(folder, "is not the folder of a rank: these are called rank0, rank1, …")
        for folder in sorted(by_folder)
        if not _RANK.fullmatch(folder)
    ]
    ranks = {int(found[1]): inside for folder, inside in by_folder.items() if (found := _RANK.fullmatch(folder))}
    infos, failed = _read_infos(files, names)
    world_size = _world_size(infos, ranks)
    left_out += [LeftOut.of_rank(rank, why, partly=True) for rank, why in sorted(failed.items())]
    records: dict[int, tuple[str, ...]] = {}
    for rank in range(world_size):
        lines = _record_files(rank, ranks.get(rank, ()))
        reason = _why_foreign(rank, infos.get(rank), world_size)
        if reason is None and not lines:
            reason = "has no steps.jsonl" if rank in ranks else "has no folder: it is on another machine, or missing"
        if reason is None:
            records[rank] = lines
        else:
            left_out.append(LeftOut.of_rank(rank, reason))
    left_out += [
        LeftOut.of_rank(rank, f"is not a rank of this run, which has {world_size} processes")
        for rank in sorted(ranks)
        if rank >= world_size
    ]
    left_out += _other_versions({rank: infos[rank] for rank in records if rank in infos})
    hosts = {rank: host for rank, info in infos.items() if isinstance(host := info.get("host"), str)}
    return RankFolders(world_size, records, hosts, tuple(left_out))


def _read_infos(files: RankFiles, names: Sequence[str]) -> tuple[dict[int, Mapping[str, Any]], dict[int, str]]:
    """Return each rank's ``run.json``, and the ranks whose one cannot be read; rank 0's is the run's."""
    ranks = {"run.json": 0} | {
        name: int(rank[1])
        for name in names
        if name.endswith("/run.json") and (rank := _RANK.fullmatch(name.partition("/")[0]))
    }
    found, failed = files.json([name for name in ranks if name in names])
    return (
        {ranks[name]: info for name, info in found.items()},
        {ranks[name]: f"run.json {why}" for name, why in failed.items()},
    )


def _world_size(infos: Mapping[int, Mapping[str, Any]], ranks: Iterable[int]) -> int:
    """Return the number of processes: as most of the ranks' files say, else as the highest rank says."""
    sizes = Counter(
        size for info in infos.values() if type(size := info.get("world_size")) is int and 0 < size <= MAX_RANKS
    )
    return sizes.most_common(1)[0][0] if sizes else min(max(ranks, default=0) + 1, MAX_RANKS)


def _record_files(rank: int, inside: Iterable[str]) -> tuple[str, ...]:
    numbers = {int(found[1] or 0): name for name in inside if (found := _LINES.fullmatch(name))}
    return tuple(f"rank{rank}/{numbers[number]}" for number in sorted(numbers))


def _why_foreign(rank: int, info: Mapping[str, Any] | None, world_size: int) -> str | None:
    """Return why a rank's folder is another run's or another rank's; None for one of this run."""
    if info is None:
        return None
    if info.get("rank") not in (rank, None):
        return f"its run.json is of rank {info['rank']!r:.20}"
    if info.get("world_size") not in (world_size, None):
        return f"is of a run of {info['world_size']!r:.20} processes, not of {world_size}"
    return None


def _other_versions(infos: Mapping[int, Mapping[str, Any]]) -> list[LeftOut]:
    """Return the ranks that another version of autoprof recorded than most; their readable steps are used."""
    versions = {
        rank: found.get("autoprof")
        for rank, info in infos.items()
        if isinstance(found := info.get("versions"), dict) and isinstance(found.get("autoprof"), str)
    }
    if not versions:
        return []
    usual = Counter(versions.values()).most_common(1)[0][0]
    return [
        LeftOut.of_rank(
            rank,
            f"was recorded by autoprof {version:.20}, the others by {usual:.20}: its readable lines are used",
            partly=True,
        )
        for rank, version in versions.items()
        if version != usual
    ]
