"""A slow step of several ranks: only the rank that did not wait in it makes a deep capture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoprof._capture.recorder import Recorder
from autoprof._flight import CaptureRequests, FlightRecorder, StepRing
from autoprof._flight.ring import FILE_BYTES
from autoprof._flight.stack import Activity
from autoprof._flight.watch import Look
from autoprof.testing import FakeClock

MS = 1_000_000


class Rank:
    """The flight recorder of one rank, without its thread, after 100 steps of 20 ms."""

    def __init__(self, run: Path, rank: int, **options: Any) -> None:
        (run / f"rank{rank}").mkdir(exist_ok=True)
        self.now_ns = 0
        self.notes: list[str] = []
        ring = StepRing([0] * (FILE_BYTES // 8), 0)
        self.flight = FlightRecorder(
            ring, Recorder(FakeClock()), CaptureRequests(ring, 3), run, rank, 4, names={}, warn=self.notes.append,
            hang_s=30.0, on_slow=True, now=lambda: self.now_ns, frames=dict, **options,
        )  # fmt: skip
        for _ in range(100):
            assert not self.step(20 * MS)
        self.poll()

    def step(self, length_ns: int, *, waited: bool | None = None) -> bool:
        """End a step; ``waited``: it was looked at, and waited for another rank or not."""
        flight = self.flight
        self.now_ns += length_ns
        if waited is not None:
            flight.watch.last = Look(flight.ring.count + 1, self.now_ns, length_ns, Activity(), waited)
        return flight.end_step(self.now_ns)

    def poll(self) -> None:
        self.now_ns += 2_000 * MS
        self.flight.ring.exclude(2_000 * MS)
        self.flight.poll()

    def reason(self) -> str | None:
        return self.flight.requests.take()


def test_the_rank_that_works_captures_and_the_rank_that_waits_does_not(tmp_path: Path) -> None:
    """Each decides by the look at its own thread, without a message."""
    slow, waiting = Rank(tmp_path, 1), Rank(tmp_path, 2)
    assert slow.step(500 * MS, waited=False)
    assert not waiting.step(500 * MS, waited=True)
    assert slow.reason() == "step 101 took 500.0 ms (usual: 20.0 ms)"
    assert waiting.reason() is None


def test_the_same_length_again_is_no_news(tmp_path: Path) -> None:
    """Neither after a capture nor after a wait; a step of more than twice the length is."""
    rank = Rank(tmp_path, 1)
    assert rank.step(500 * MS, waited=False)
    rank.reason()
    rank.poll()
    assert not rank.step(700 * MS, waited=False)
    assert rank.step(1100 * MS, waited=False)


def test_rank_0_asks_the_rank_that_the_comparison_names(tmp_path: Path) -> None:
    """Where the step was too short to be looked at: by a file, which that rank takes."""
    first = Rank(tmp_path, 0, culprit=lambda: 3)
    third = Rank(tmp_path, 3, culprit=lambda: None)
    assert not first.step(300 * MS)
    assert not third.step(300 * MS)
    first.flight.poll()
    third.flight.poll()
    assert first.reason() is None
    assert third.reason() == "step 101 took 300.0 ms (usual: 20.0 ms)"
    assert not first.notes


@pytest.mark.parametrize("culprit", [0, None])
def test_rank_0_captures_itself_or_says_that_the_rank_is_inconclusive(tmp_path: Path, culprit: int | None) -> None:
    """No rank is accused without a comparison."""
    rank = Rank(tmp_path, 0, culprit=lambda: culprit)
    rank.step(300 * MS)
    rank.flight.poll()
    assert (rank.reason() is None) is (culprit is None)
    assert bool(rank.notes) is (culprit is None)
    if culprit is None:
        assert "which rank was slow is inconclusive" in rank.notes[0]


def test_a_rank_without_a_folder_here_is_a_note(tmp_path: Path) -> None:
    """On another host the run's folder may be another."""
    rank = Rank(tmp_path, 0, culprit=lambda: 2)
    rank.step(300 * MS)
    rank.flight.poll()
    assert "rank 2 cannot be asked for a deep capture" in rank.notes[0]


def test_a_file_of_the_run_goes_to_the_ranks_that_it_names(tmp_path: Path) -> None:
    """Without a number, to the rank that the comparison names, or to rank 0."""
    first, second = Rank(tmp_path, 0), Rank(tmp_path, 1)
    (tmp_path / "capture.request").write_text("1")
    first.poll()
    second.poll()
    assert (first.reason(), second.reason()) == (None, "the file capture.request")
    (tmp_path / "capture.request").touch()
    first.poll()
    assert first.reason() == "the file capture.request"
