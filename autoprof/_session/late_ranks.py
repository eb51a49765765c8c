"""Join the other ranks of a process group that is made after the session was opened.

Until then such a rank is recorded as a process that trains alone: its run has a folder of its own, and a display.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.notes import Notes
from .._process.ranks import group_is_ready, world_size
from .._ranks import RankMonitor
from ..diagnose import Diagnosis
from ..sinks import Sink
from .pipeline import Pipeline
from .rank_exchange import RankExchange, make_exchange
from .sampler import Sampler

if TYPE_CHECKING:
    from .._ranks import Exchange
    from .._storage.runs import RunFolder


class LateRanks:
    """Look for a process group in the first steps. ``own_sinks`` are those of the configuration.

    Ranks other than 0 lose their displays then, and at the end their files move to the folder of rank 0's run, where
    they can see it.
    """

    def __init__(
        self,
        sampler: Sampler,
        diagnosis: Diagnosis,
        pipeline: Pipeline,
        folder: RunFolder | None,
        own_sinks: Sequence[Sink],
        notes: Notes,
    ) -> None:
        self._sampler = sampler
        self._diagnosis = diagnosis
        self._pipeline = pipeline
        self._folder = folder
        self._own_sinks = tuple(own_sinks)
        self._notes = notes
        self._settled = False

    def step_begins(self, step: int) -> None:
        """Called with the number of each recorded step before it begins."""
        # The last step before which a process group is looked for: without one, no gradient has been averaged so far.
        last_step = 16
        if self._settled or not (group_is_ready() or step > last_step):
            return
        self._settled = True
        if step <= last_step and world_size() > 1:
            with self._notes.contain("the ranks that became known"):
                self._join()

    def _join(self) -> None:
        exchange = make_exchange(self._sampler)
        assert exchange is not None
        rank, count = exchange.place
        self._pipeline.follow(RankExchange(exchange, self._sampler, shows=rank == 0))
        self._diagnosis.join_ranks(rank, count, RankMonitor(None, rank, count, exchange))
        if rank:
            from ..sinks import only_on_rank_0

            self._pipeline.discard(only_on_rank_0(self._own_sinks))
        if self._folder is not None:
            self._folder.note("rank", rank)
            self._folder.note("world_size", count)
            if rank:
                self._pipeline.at_end(partial(_move, self._folder, exchange))
            else:
                exchange.folder = str(self._folder.path)
        exchange.start()


def _move(folder: RunFolder, exchange: Exchange) -> None:
    """Move the files of a rank to the run of rank 0, if this process can see it."""
    if exchange.folder is not None:
        folder.join(Path(exchange.folder), exchange.place.rank)
