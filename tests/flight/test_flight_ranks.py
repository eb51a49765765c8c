"""Ranks that hang and are killed: the files of the flight recorder name the rank, the module and the line."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import flight_workers
import pytest
from gloo_ranks import rank_context
from waiting import LIMIT_S, wait_until

from autoprof.frontends.cli import main
from autoprof.session.flight import HANG_REPORT, State, describe_ranks, rank_lines, standing_out

WORLD_SIZE, SLOW = 3, 1


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Train on three ranks, one of which hangs; kill all by SIGKILL once rank 0 has reported it; return the run."""
    folder = tmp_path_factory.mktemp("hang")
    context = rank_context()
    ranks = [
        context.Process(target=flight_workers.hang_on, args=(SLOW, rank, WORLD_SIZE, str(folder)))
        for rank in range(WORLD_SIZE)
    ]
    try:
        for process in ranks:
            process.start()

        def reports() -> list[Path]:
            assert all(process.is_alive() for process in ranks), "a rank has ended"
            return list(folder.glob(f"*/{HANG_REPORT}"))

        wait_until(reports, "the report of the hang")
        (found,) = reports()
        report = found.read_text(encoding="utf-8")
    finally:
        started = [process for process in ranks if process.pid is not None]
        for process in started:  # all, before one of them sees that another has gone
            os.kill(process.pid, signal.SIGKILL)
        for process in started:
            process.join(LIMIT_S)
    return found.parent, report


def test_a_hang_is_reported_with_the_rank_that_the_others_wait_for(killed: tuple[Path, str]) -> None:
    """Rank 0 writes one report: the step, and of rank 1 that it is in the forward of ``middle``."""
    _, report = killed
    assert report.startswith(f"step {flight_workers.HANGS_AT} has not ended for ")
    line = next(line for line in report.splitlines() if line.startswith(f"{SLOW} *"))
    assert "middle, forward" in line
    assert "flight_workers.py" in line
    assert "forward" in line


def test_each_rank_writes_its_stack(killed: tuple[Path, str]) -> None:
    """The innermost lines first."""
    run, _ = killed
    reports = [(run / f"rank{rank}" / HANG_REPORT).read_text(encoding="utf-8") for rank in range(WORLD_SIZE)]
    for rank, report in enumerate(reports):
        assert report.startswith(f"rank {rank}: step {flight_workers.HANGS_AT} has not ended for ")
        assert "flight_workers.py" in report


def test_the_last_states_are_read_after_every_rank_was_killed(killed: tuple[Path, str]) -> None:
    """The file of each rank has its last step; only the rank that hung did not wait for others."""
    run, _ = killed
    lines = rank_lines(run, WORLD_SIZE)
    flights = [line.flight for line in lines if line.flight is not None]
    assert [flight.steps for flight in flights] == [flight_workers.HANGS_AT - 1] * WORLD_SIZE
    assert [flight.state for flight in flights] == [State.TRAINING] * WORLD_SIZE
    assert [flight.is_running for flight in flights] == [False] * WORLD_SIZE
    assert [line.waits for line in lines] == [rank != SLOW for rank in range(WORLD_SIZE)]
    assert standing_out(lines)[0] == [SLOW]
    assert describe_ranks(lines)[0].startswith(f"rank {SLOW} did not wait, and the others waited: middle, forward at ")


def test_show_begins_with_the_last_states(killed: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each rank, and the one that the others wait for."""
    run, _ = killed
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("The last state of each rank\nrank ")
    assert [line.split()[0] for line in shown.splitlines()[2 : 2 + WORLD_SIZE]] == ["0", "1", "2"]
    assert f"rank {SLOW} did not wait, and the others waited: middle, forward at" in " ".join(shown.split())
