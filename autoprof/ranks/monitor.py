"""Compare the ranks of a run, during the run and after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from ..errors import OutputError
from .comparison import RankComparison, compare_ranks
from .exchange import CLOSING_S, Exchange
from .record import RankRecord
from .record_reader import read_folder


def compare_saved(
    run: Path, world_size: int, saved: RankComparison | None, own: Mapping[int, RankRecord] = MappingProxyType({})
) -> RankComparison:
    """Return the comparison that rank 0 has saved, or the one by records where that one has more ranks or steps.

    Other ranks may have ended after rank 0. ``own`` is the record of this rank, whose file may not be written yet.
    """
    # Steps compared below which the records are read: they may have more.
    if saved is not None and saved.missing is None and not saved.absent and saved.steps >= 64:
        return saved
    records: Mapping[int, RankRecord] = {}
    with suppress(OutputError):
        records = read_folder(run, world_size).records
    read = compare_ranks({**records, **own}, world_size=world_size)
    return read if saved is None or _extent(read) > _extent(saved) else saved


def _extent(comparison: RankComparison) -> tuple[bool, int, int]:
    return comparison.missing is None, -len(comparison.absent), comparison.steps


class RankMonitor:
    """Compare the ranks on rank 0: by the messages of the others, at the end also by their records in the folder."""

    def __init__(
        self,
        run: Path | None,
        rank: int,
        world_size: int,
        exchange: Exchange | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._rank = rank
        self._world_size = world_size
        self._exchange = exchange
        self._clock = clock
        self._sleep = sleep

    def comparison(self, *, final: bool, waits: bool = False) -> RankComparison | None:
        """Return the last comparison; ``final`` compares all steps that are known.

        With ``waits`` it waits for the records of ranks that exchange no messages, for a short time.
        """
        if self._world_size <= 1 or self._rank:
            return None
        exchange = self._exchange
        if not final:
            return None if exchange is None else exchange.comparison
        received = None
        if exchange is not None and exchange.connected:
            received = compare_ranks(exchange.records(), world_size=self._world_size)
        if self._run is None:
            return received or RankComparison(self._world_size, "the ranks' records: keep the sink jsonl on")
        own = {} if exchange is None or received is not None else {0: exchange.work.record()}
        if own and waits:
            self._wait(self._run)
        return compare_saved(self._run, self._world_size, received, own)

    def _wait(self, run: Path) -> None:
        """Wait for the records of the other ranks: they end at about the same time, and write their last steps then.

        A rank without a folder in the run's is on another machine, and not waited for.
        """
        folders = [run / f"rank{rank}" for rank in range(1, self._world_size)]
        until = self._clock() + CLOSING_S
        while all(one.is_dir() for one in folders) and self._clock() < until:
            files = [one / "steps.jsonl" for one in folders]
            if all(one.exists() and one.stat().st_size for one in files):
                return
            self._sleep(0.02)
