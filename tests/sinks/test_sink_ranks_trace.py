"""The trace of all ranks at the end of a run: its steps, its ranks, and its limits."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sink_builders import Clock, summary_of
from test_rank_timeline import step
from trace_rules import Event, check

from autoprof._storage.records import RecordWriter
from autoprof._storage.runs import RunFolder
from autoprof.sinks._base import RunInfo
from autoprof.sinks._make import make_sinks
from autoprof.sinks.ranks_trace import RanksTraceOptions, RanksTraceSink, choose_ranks
from autoprof.summary import Finding, Summary

NOTHING = summary_of([])


class Ranks:
    """The folders of the ranks of one run, with the sink of rank 0."""

    def __init__(self, folder: Path, world_size: int, count: int = 5, wait_s: float = 0.0, **limits: Any) -> None:
        self.folders = [
            RunFolder.create(folder, rank=at, world_size=world_size, name="run") for at in range(world_size)
        ]
        self.stream = io.StringIO()
        run = RunInfo(self.folders[0], 0, self.stream, world_size=world_size)
        self.sink = RanksTraceSink(RanksTraceOptions(count=count), run, wait_s=wait_s, **limits)
        self.path = folder / "run" / "trace.json"

    def record(self, rank: int, steps: range | list[int], late_ms: float = 0.0) -> None:
        """Write the records of one rank."""
        writer = RecordWriter(self.folders[rank].rank_path, 5.0, Clock())
        for number in steps:
            writer.write(step(number, late_ms=late_ms))
        writer.close()

    def close(self, summary: Summary = NOTHING) -> list[Event]:
        """Close the sink and read its trace."""
        self.sink.close(summary)
        return check(self.path.read_text("utf-8"))


def steps_of(events: list[Event]) -> dict[int, list[str]]:
    """Return the names of the steps of each process."""
    found: dict[int, list[str]] = {}
    for event in events:
        if event.get("cat") == "step":
            found.setdefault(event["pid"] // 100_000 - 1, []).append(event["name"])
    return found


def test_the_last_common_steps_of_all_ranks_are_in_one_file(tmp_path: Path) -> None:
    """Steps that a rank did not record are in no rank's part."""
    ranks = Ranks(tmp_path, 3, count=2)
    ranks.record(0, range(1, 10))
    ranks.record(1, [1, 2, 4, 6, 8])
    ranks.record(2, range(1, 8), late_ms=5)
    events = ranks.close()
    assert steps_of(events) == {rank: ["step 4", "step 6"] for rank in range(3)}
    assert {event["args"]["last_to_enter"] for event in events if event["name"] == "Comm/DDP"} == {"rank 2"}
    assert ranks.stream.getvalue().startswith("autoprof: trace of steps 4 to 6 on 3 ranks, for ui.perfetto.dev: ")


def test_a_rank_without_records_here_is_named(tmp_path: Path) -> None:
    """It is on another machine, or it never began."""
    ranks = Ranks(tmp_path, 3)
    ranks.record(0, range(1, 4))
    ranks.record(2, range(1, 4))
    assert sorted(steps_of(ranks.close())) == [0, 2]
    assert "(without rank 1: no records in this folder)" in ranks.stream.getvalue()


@pytest.mark.parametrize("others", [[], [20]])
def test_without_a_common_step_there_is_no_file(tmp_path: Path, others: list[int]) -> None:
    """A line says so."""
    ranks = Ranks(tmp_path, 2)
    ranks.record(0, range(1, 4))
    ranks.record(1, others)
    ranks.sink.close(NOTHING)
    assert not ranks.path.exists()
    assert ranks.stream.getvalue() == (
        "autoprof: no trace of all ranks: the ranks in this run's folder have no last step in common\n"
    )


def test_the_end_waits_for_the_last_records_of_the_others(tmp_path: Path) -> None:
    """A rank that ends a little later is there with its last step."""
    ranks = Ranks(tmp_path, 2, wait_s=30.0, count=1)
    ranks.record(0, range(1, 6))
    (ranks.folders[1].rank_path / "steps.jsonl").touch()

    def end() -> None:
        time.sleep(0.1)
        ranks.folders[1].finish("closed")
        ranks.record(1, range(1, 6))

    other = threading.Thread(target=end)
    other.start()
    events = ranks.close()
    other.join()
    assert steps_of(events) == {0: ["step 5"], 1: ["step 5"]}


def test_the_file_is_limited_in_size(tmp_path: Path) -> None:
    """Each rank has its part of it, and the file is whole."""
    ranks = Ranks(tmp_path, 2, count=2000, max_bytes=20_000)
    many = range(1, 65)
    for rank in range(2):
        ranks.record(rank, many)
    events = ranks.close()
    shown = steps_of(events)
    assert len(shown[0]) == len(shown[1]) < len(many)
    assert ranks.path.stat().st_size < 21_000


def test_of_many_ranks_a_few_are_in_the_file() -> None:
    """Rank 0, the ranks that findings name, and others from all parts of the run."""
    named = Summary.empty()
    object.__setattr__(named, "findings", (Finding("straggler", "warning", "slow", "look", rank=777),))
    chosen = choose_ranks(1024, 8, named)
    assert len(chosen) == 8
    assert chosen[0] == 0
    assert 777 in chosen
    assert choose_ranks(4, 8, named) == [0, 1, 2, 3]


def test_a_run_of_one_rank_has_none(tmp_path: Path) -> None:
    """And none of the other ranks has."""
    from autoprof.sinks import parse_config

    wanted = parse_config("sinks: {ranks_trace: {}}").sinks
    folder = RunFolder.create(tmp_path)
    alone = make_sinks(wanted, RunInfo(folder, 0, io.StringIO()))
    second = make_sinks(wanted, RunInfo(folder, 1, io.StringIO(), world_size=2))
    (first,) = make_sinks(wanted, RunInfo(folder, 0, io.StringIO(), world_size=2))
    assert (alone, second) == ((), ())
    assert isinstance(first, RanksTraceSink)
