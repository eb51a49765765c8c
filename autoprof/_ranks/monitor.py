"""Compare the ranks of a run from their records in the run's folder, during the run and after it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .comparison import RankComparison, compare_ranks
from .exchange import Exchange
from .record import RankRecord
from .record_reader import MAX_STEPS, read_record


def read_ranks(
    run: Path,
    world_size: int,
    *,
    steps: int = MAX_STEPS,
    longest: tuple[int, ...] = (),
    seconds: float | None = None,
) -> RankComparison | None:
    """Compare the ranks whose records are in a run's folder; None if that takes longer than ``seconds``."""
    deadline = float("inf") if seconds is None else time.monotonic() + seconds
    records: dict[int, RankRecord] = {}
    absent = []
    for rank in range(world_size):
        path = run / f"rank{rank}" / "steps.jsonl"
        try:
            record = read_record(path, steps, deadline)
        except OSError:
            absent.append(rank)
            continue
        if record is None:
            return None
        records[rank] = record
    if absent and len(records) < 2:
        which = ", ".join(map(str, absent[:4])) + (", …" if len(absent) > 4 else "")
        why = "not in this run's folder (on another machine, or without the sink jsonl)"
        return RankComparison(world_size, f"the records of rank {which}: {why}")
    return compare_ranks(records, longest, world_size=world_size)


def compare_saved(
    run: Path, world_size: int, saved: RankComparison | None, longest: tuple[int, ...] = ()
) -> RankComparison | None:
    """Return the comparison that rank 0 has saved, or the one by records where these have more ranks or steps.

    Other ranks may have ended after rank 0.
    """
    read = read_ranks(run, world_size, longest=longest)
    return read if saved is None or (read is not None and _has_more(read, saved)) else saved


class RankMonitor:
    """Compare the ranks on rank 0: by the messages of the others, or else by their records in the run's folder.

    During the run the records are read every ``INTERVAL_S``, for at most ``TIME_LIMIT_S``.
    """

    INTERVAL_S: Final = 30.0
    TIME_LIMIT_S: Final = 0.02

    def __init__(self, run: Path | None, rank: int, world_size: int, exchange: Exchange | None = None) -> None:
        self._run = run
        self._rank = rank
        self._world_size = world_size
        self._exchange = exchange
        self._last: RankComparison | None = None
        self._due = time.monotonic() + self.INTERVAL_S

    def comparison(self, longest: tuple[int, ...], *, final: bool) -> RankComparison | None:
        """Return the last comparison, renewed when it is due; ``final`` compares all steps without a time limit."""
        if self._world_size <= 1 or self._rank:
            return None
        if final:
            self._last = self._compare_all(longest)
        elif self._exchange is not None and self._exchange.connected:
            self._last = self._exchange.comparison
        elif self._run is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + self.INTERVAL_S
            seconds = self.TIME_LIMIT_S
            # Steps compared during the run.
            found = read_ranks(self._run, self._world_size, steps=32, longest=longest, seconds=seconds)
            self._last = found or self._last
        return self._last

    def _compare_all(self, longest: tuple[int, ...]) -> RankComparison:
        """Return the comparison by messages, or by records where these have more ranks, or more steps of as many.

        A rank whose last message comes too late is known by older steps, which other ranks may not have recorded.
        """
        received = compare_received(self._exchange, self._world_size, longest)
        # Steps compared by messages below which the records are read, too: they may have more.
        if received is not None and not received.absent and received.steps >= 64:
            return received
        read = None if self._run is None else read_ranks(self._run, self._world_size, longest=longest)
        if read is not None and (received is None or _has_more(read, received)):
            return read
        return received or RankComparison(self._world_size, "the ranks' records: keep the sink jsonl on")


def _has_more(read: RankComparison, received: RankComparison) -> bool:
    """Return whether a comparison by records has more ranks than one by messages, or many more steps of as many."""
    if read.missing is not None:
        return False
    if received.missing is not None or len(read.absent) < len(received.absent):
        return True
    return len(read.absent) == len(received.absent) and 4 * read.steps > 5 * received.steps


def compare_received(
    exchange: Exchange | None, world_size: int, longest: tuple[int, ...] = ()
) -> RankComparison | None:
    """Compare the ranks by their messages; None where there are none."""
    if exchange is None or not exchange.connected:
        return None
    return compare_known(exchange.records(), world_size, longest)


def compare_known(records: Mapping[int, RankRecord], world_size: int, longest: tuple[int, ...] = ()) -> RankComparison:
    """Compare the ranks whose records are known."""
    absent = [rank for rank in range(world_size) if rank not in records]
    if absent and len(records) < 2:
        which = ", ".join(map(str, absent[:4])) + (", …" if len(absent) > 4 else "")
        return RankComparison(world_size, f"the messages of rank {which}: none came")
    return compare_ranks(records, longest, world_size=world_size)
