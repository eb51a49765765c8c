"""The rank that the others wait for, from the last states of all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoprof.session.flight import RankLine, State, describe_ranks, last_states, rank_lines, standing_out
from autoprof.session.flight.ring import FILE, Flight, FlightFile, StepRing

S = 1_000_000_000
NOW = 1_000 * S
WAITS = {"waits": True, "collective": "all_reduce", "phase": "comm", "site": "train.py:9 main"}
WORKS = {"waits": False, "module": "middle", "phase": "forward", "site": "model.py:5 forward"}


def line(rank: int, text: dict[str, Any], **changed: Any) -> RankLine:
    """Return the state of a rank whose step has been open for 10 s."""
    values: dict[str, Any] = {
        "is_running": None, "state": State.TRAINING, "steps": 40, "began_unix_ns": NOW - 10 * S, "last_unix_ns": NOW,
        "usual_ns": S // 100,
    }  # fmt: skip
    return RankLine(rank, Flight(text=text, **{**values, **changed}))


@pytest.mark.parametrize(
    ("lines", "ranks", "why"),
    [
        ([line(0, WAITS), line(1, WORKS), line(2, WAITS)], [1], "did not wait"),
        ([line(0, WAITS), line(1, WAITS, steps=39), line(2, WAITS)], [1], "fewer steps"),
        ([line(0, WAITS), line(1, WAITS), line(2, WAITS)], [], ""),
        ([line(0, WAITS), line(1, WAITS), line(2, WAITS, is_running=False)], [2], "ended without closing"),
        ([line(rank, WORKS, is_running=False) for rank in range(3)], [], ""),
        ([line(0, WAITS), line(1, WORKS, last_unix_ns=NOW - 9 * S), line(2, WORKS)], [1], "last sign of life"),
        (
            [line(0, WAITS), line(1, WORKS, state=State.CLOSED, last_unix_ns=NOW - 9 * S), line(2, WAITS)],
            [1],
            "closed the session",
        ),
        ([line(0, WAITS), line(1, WORKS), line(2, WAITS, state=State.CLOSED)], [1], "did not wait"),
        ([line(0, WAITS), RankLine(1, None, "no file here"), line(2, WAITS)], [1], "no file"),
        ([line(0, WORKS)], [], ""),
    ],
)
def test_the_rank_that_stands_out(lines: list[RankLine], ranks: list[int], why: str) -> None:
    """The one that works while the others wait, that has gone, or that is behind; none where all do the same."""
    found, reason = standing_out(lines)
    assert found == ranks
    assert why in reason


def test_no_rank_of_a_healthy_run_that_was_killed_stands_out() -> None:
    """A moment in which one rank waits for another is no hang."""
    began = {"began_unix_ns": NOW - S // 50}
    lines = [line(0, WAITS, **began), line(1, WORKS, **began)]
    assert standing_out(lines) == ([], "")
    assert describe_ranks(lines)[0] == "no rank stands out; 1 of 2 ranks: waits in all_reduce"


def test_the_table_has_a_line_for_each_rank() -> None:
    """The rank that stands out has an asterisk, and a reason below."""
    verdict, table = describe_ranks([line(0, WAITS), line(1, WORKS)])
    assert verdict == "rank 1 did not wait, and the others waited: middle, forward at model.py:5 forward"
    assert table == [
        "rank  steps    usual  open step  last sign  state                line",
        "0        40  10.0 ms       10 s          0  waits in all_reduce  train.py:9 main",
        "1 *      40  10.0 ms       10 s          0  middle, forward      model.py:5 forward",
        "* did not wait, and the others waited",
    ]


@pytest.mark.parametrize(
    ("text", "changed", "expected"),
    [
        ({}, {"state": State.EXCLUDED}, "outside of steps (validation, saving, a pause)"),
        ({"excluded": "compile"}, {}, "outside of steps (compile)"),
        ({}, {"state": State.CLOSED}, "closed its session"),
        ({"call": "get"}, {}, "in Python: get"),
        ({"waits": True}, {}, "waits in backward"),
        (
            {"waits": True, "collective": "wait", "phase": "backward", "module": "a/b"},
            {},
            "waits in wait (a/b, backward)",
        ),
    ],
)
def test_states_in_words(text: dict[str, Any], changed: dict[str, Any], expected: str) -> None:
    """Each state has a phrase."""
    assert line(0, text, **changed).doing() == expected


def test_of_many_ranks_the_table_has_those_that_stand_out() -> None:
    """A thousand ranks are 32 lines and a count."""
    lines = [line(rank, WORKS if rank == 777 else WAITS) for rank in range(1000)]
    _, table = describe_ranks(lines)
    assert len(table) == 33 + 2
    assert any(row.startswith("777 *") for row in table)
    assert table[-1] == "and 968 more ranks"


def test_damaged_and_missing_files_are_lines(tmp_path: Path) -> None:
    """The others are shown; a run without any file has no table, nor has one that was closed."""
    assert rank_lines(tmp_path, 2) == []
    for rank in range(2):
        (tmp_path / f"rank{rank}").mkdir()
    (tmp_path / "rank1" / FILE).write_bytes(b"x")
    ring, file = StepRing(0), FlightFile(tmp_path / "rank0" / FILE)
    file.write(ring, 0, 0, {})
    lines = last_states(tmp_path, 3)
    assert lines[0].flight is not None
    assert lines[1].doing() == "its file cannot be read (ValueError)"
    assert lines[2].doing().startswith("no file here")
    ring.state = State.CLOSED
    file.write(ring, 0, 0, {})
    assert last_states(tmp_path, 1) == []
    (tmp_path / "hang.txt").touch()
    assert len(last_states(tmp_path, 1)) == 1
