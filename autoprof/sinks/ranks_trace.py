"""``trace.json`` of all ranks: the last steps that they have in common, written by rank 0 at the end of the run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from .._core.options import Options
from .._ranks import read_last_frames, step_collectives
from .._reports.run_facts import shown_path
from .._storage.records import RECORDS
from .._storage.runs import read_json, read_records
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, SinkKind
from ._rank_timeline import align_ranks
from .trace import BYTES_PER_MB, write_trace


class RanksTraceOptions(Options):
    """The file `trace.json` of a run of several ranks, for Perfetto: the last steps that all ranks recorded."""

    count: int = Field(default=5, ge=1, strict=True)
    """Number of steps."""


class RanksTraceSink:
    """Write the trace when the run is closed. Ranks whose records are missing then are named."""

    def __init__(
        self, options: RanksTraceOptions, run: RunInfo, *, wait_s: float = 2.0, max_bytes: int = 20 * BYTES_PER_MB
    ) -> None:
        self._count = options.count
        self._wait_s = wait_s
        self._max_bytes = max_bytes
        self._folder = folder_of(run)
        self._path = self._folder.path / "trace.json"
        self._world_size = run.world_size
        self._stream = run.stream

    def write(self, frame: StepFrame) -> None:
        """Do nothing: the trace is made of the records."""

    def close(self, summary: Summary) -> None:
        """Wait for the last records of the other ranks, for a limited time, and write the trace."""
        # The most ranks in the file; of more: rank 0, those that findings name, and others evenly spread.
        wanted = choose_ranks(self._world_size, 32, summary)
        frames = {rank: held for rank, held in self._read(wanted).items() if held}
        common = set.intersection(*({frame.step for frame in held} for held in frames.values())) if frames else set()
        steps = sorted(common)[-self._count :]
        if not steps or len(frames) == 1:
            why = "the ranks in this run's folder have no last step in common"
            print(f"autoprof: no trace of all ranks: {why}", file=self._stream)
            return
        self._write(frames, steps)
        missing = ", ".join([str(rank) for rank in wanted if rank not in frames][:8])
        without = f" (without rank {missing}: no records in this folder)" if missing else ""
        print(
            f"autoprof: trace of steps {steps[0]} to {steps[-1]} on {len(frames)} ranks, for ui.perfetto.dev{without}: "
            f"{shown_path(self._path)}",
            file=self._stream,
        )

    def _read(self, ranks: list[int]) -> Mapping[int, list[StepFrame]]:
        """Return the last frames of each rank whose records are here, once all have ended or the time is over."""
        until = time.monotonic() + self._wait_s
        while time.monotonic() < until and not all(self._has_ended(rank) for rank in ranks):
            time.sleep(0.05)
        if self._wait_s:
            time.sleep(0.2)  # the time between the end that a rank notes and its last record
        frames: dict[int, list[StepFrame]] = {}
        for rank in ranks:
            with suppress(OSError):  # the records of another machine are not here
                # The last steps of each rank that are read: they align the clocks.
                frames[rank] = read_last_frames(self._rank_path(rank) / RECORDS, 64) or []
        return frames

    def _has_ended(self, rank: int) -> bool:
        """Return whether a rank has noted its end, or has no records here."""
        if rank == self._folder.rank or not (self._rank_path(rank) / RECORDS).is_file():
            return True
        with suppress(OSError, ValueError, AttributeError):
            return read_json(self._rank_path(rank) / "run.json").get("ended") is not None
        return False

    def _rank_path(self, rank: int) -> Path:
        return self._folder.path / f"rank{rank}"

    def _write(self, frames: Mapping[int, list[StepFrame]], steps: list[int]) -> None:
        run = read_records(self._folder.path)
        timeline = align_ranks(
            {rank: [step_collectives(frame) for frame in held] for rank, held in frames.items()},
            {rank: run.clock(rank) for rank in frames},
            steps[0],
            steps[-1],
        )
        chosen = set(steps)

        def frames_of(rank: int) -> Iterator[StepFrame]:
            return (frame for frame in frames[rank] if frame.step in chosen)

        write_trace(self._path, frames_of, timeline, list(frames), self._max_bytes)


def choose_ranks(world_size: int, limit: int, summary: Summary) -> list[int]:
    """Return all ranks, or rank 0, those that findings name, and others evenly spread, ``limit`` together."""
    if world_size <= limit:
        return list(range(world_size))
    named = [one.rank for one in summary.findings if one.rank is not None and 0 <= one.rank < world_size]
    spread = [at * world_size // limit for at in range(limit)]
    return sorted(list(dict.fromkeys([0, *named, *spread]))[:limit])


SINK = SinkKind(
    RanksTraceOptions,
    RanksTraceSink,
    in_folder=True,
    several_ranks=True,
    default=RanksTraceOptions(),
    close_order=CloseOrder.PICTURES,
)
