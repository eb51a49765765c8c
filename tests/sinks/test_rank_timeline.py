"""Several ranks in one trace: their clocks, aligned by the calls in which they meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sink_builders import MS, frame_of, layout_of
from trace_rules import Event, check

from autoprof._ranks import call_ends
from autoprof._storage.runs import RunFolder
from autoprof.cli import main
from autoprof.frame import StepFrame
from tests.saved_records import write_records

S = 1_000_000_000
BEGIN = 1_763_640_000 * S
ROWS = (
    ("Layer", "forward", -1, 10),
    ("Layer", "backward", -1, 20),
    ("Comm/DDP", "comm", -1, 0),
    ("Comm/broadcast", "comm", -1, 1),
    ("Comm/all_reduce", "comm", -1, 0),
)


def layout(rows: Sequence[tuple[str, str, int, float]] = ROWS) -> object:
    """Return the layout of rows, whose modules have fqns."""
    made = layout_of(rows)
    return type(made)(**{**vars(made), "fqns": tuple("layer" if name == "Layer" else None for name in made.names)})


LAYOUT = layout()


def step(
    number: int, late_ms: float = 0.0, begin: int = BEGIN, late_reduce_ms: float = 0.0, leaves_ms: float = 0.0
) -> StepFrame:
    """Return a step of 100 ms: the backward ends ``late_ms`` later, DDP at 50 ms, an all-reduce at 60 ms or later."""
    starts = np.array([0, 10, 30 + late_ms, 50, 52 + late_reduce_ms]) * MS
    ends = np.array([10, 30 + late_ms, 50, 51, 60 + leaves_ms]) * MS
    frame = frame_of(ROWS, step=number, step_ms=100, layout=LAYOUT)  # type: ignore[arg-type]
    changes = {
        "start_unix_ns": begin + number * 100 * MS, "start_ns": starts.astype(np.int64),
        "host_ns": (ends - starts).astype(np.int64),
    }  # fmt: skip
    return StepFrame.of(**{**vars(frame), **changes})


def write_run(folder: Path, ranks: Sequence[Sequence[StepFrame]], hosts: Sequence[str]) -> Path:
    """Write the records of ranks as runs do."""
    for rank, frames in enumerate(ranks):
        made = RunFolder.create(folder, rank=rank, world_size=len(ranks), name="run")
        made.note("host_number", hosts[rank])
        write_records(made.rank_path, frames)
    return folder / "run"


def trace(run: Path, *options: str) -> list[Event]:
    """Write the trace of a run and check it."""
    out = run.parent / "trace.json"
    assert main(["show", str(run), "--trace", str(out), *options]) == 0
    return check(out.read_text("utf-8"))


def test_only_calls_in_which_all_ranks_meet_count() -> None:
    """A broadcast is left out: its root goes on at once."""
    assert call_ends(step(7), BEGIN) == {
        (7, "Comm/DDP", 0): BEGIN + 50 * MS, (7, "Comm/all_reduce", 0): BEGIN + 60 * MS,
    }  # fmt: skip


def test_on_a_device_calls_have_its_times() -> None:
    """There the host has left a call long before the device has."""
    rows = (("Comm/all_reduce", "comm", -1, 1), ("Comm/barrier", "comm", -1, 1))
    device = {"device_start_ns": np.array([5, 0]) * MS, "device_ns": np.array([7 * MS, -1]), "device_duration_ns": MS}
    assert list(call_ends(frame_of(rows, **device), 0).values()) == [12 * MS]


def test_ranks_of_two_hosts_are_on_one_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A clock that is an hour ahead is corrected, and the command states how well."""
    steps = range(1, 31)
    slow = [step(at, late_reduce_ms=7.5 * (at % 2), begin=BEGIN + 3600 * S, leaves_ms=at % 7) for at in steps]
    usual = [step(at, late_reduce_ms=7.5 - 7.5 * (at % 2)) for at in steps]
    run = write_run(tmp_path, [usual, usual, slow], ["a", "a", "b"])
    events = trace(run, "--steps", "3:4")
    begins = sorted((event["pid"], event["ts"]) for event in events if event["name"] == "step 3")
    assert [pid for pid, _ in begins] == [100_000, 200_000, 300_000]
    assert all(0 <= ts <= 500 for _, ts in begins)
    assert "clocks aligned to ± 9.000 ms by collectives" in capsys.readouterr().err


def test_a_clock_without_a_common_call_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown as it is, and the command says that it is not aligned."""
    alone = frame_of((("Layer", "forward", -1, 10),), step=1)
    trace(write_run(tmp_path, [[step(1)], [alone]], ["a", "b"]))
    assert "too few collectives in common to align the clock of rank 1" in capsys.readouterr().err
