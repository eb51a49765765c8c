"""Deep captures that are asked for during a run: their size is limited, at once and in all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from deep_builders import Program, events
from torch import nn

from autoprof.deep import RequestedCaptures
from autoprof.deep.requested import CAPTURES_SHARE


class Sampling:
    """Records the reservations."""

    def __init__(self) -> None:
        self.reserved: list[tuple[int, int]] = []

    def reserve(self, first: int, count: int) -> None:
        self.reserved.append((first, count))

    def exclude(self, ns: int) -> None:
        pass


class Captures:
    """Requested captures in a folder of the test's."""

    def __init__(self, folder: Path, *, max_run_mb: float | None = None) -> None:
        self.requests: list[str] = []
        self.notes: list[str] = []
        self.sampling = Sampling()
        self.folder = folder / "rank3"
        self.made = RequestedCaptures(
            self.folder, 3,
            output_max_mb=None if max_run_mb is None else max_run_mb / CAPTURES_SHARE, targets=(),
            sampling=self.sampling, take=lambda: self.requests.pop() if self.requests else None, warn=self.notes.append,
        )  # fmt: skip

    def traces(self) -> list[Path]:
        return sorted(self.folder.glob("*_trace.json"))


def test_the_next_steps_are_captured_and_excluded(tmp_path: Path) -> None:
    """They and the one after; the note has the reason."""
    captures, program = Captures(tmp_path), Program()
    excluded = []
    for step in range(1, 7):
        if step == 3:
            captures.requests.append("a test")
        excluded.append(captures.made.step_begins(step))
        program.step()
    assert excluded == [False, False, True, True, True, False]
    assert captures.sampling.reserved == [(3, 3)]
    assert [path.name for path in captures.traces()] == ["flight_steps3-4_rank3_trace.json"]
    assert captures.notes[0] == "a test: a deep capture of 2 steps from step 3 on"
    captures.made.close()
    assert (captures.folder / "flight_steps3-4_rank3_tables.txt").exists()


def test_a_trace_above_the_limit_is_cut_when_it_is_written(tmp_path: Path) -> None:
    """Not at the end of the run, which may never come."""
    captures = Captures(tmp_path, max_run_mb=2)
    model, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(150))), torch.ones(1, 4)
    captures.requests.append("a test")
    for step in range(1, 4):
        captures.made.step_begins(step)
        model(x).sum().backward()
    (trace,) = captures.traces()
    assert 0 < trace.stat().st_size <= 2_000_000
    assert events(trace)
    assert any("was cut from" in note for note in captures.notes)


@pytest.mark.parametrize(("used_mb", "expected"), [(3.0, 1), (4.5, 0)])
def test_the_captures_of_all_ranks_share_the_limit_of_the_run(tmp_path: Path, used_mb: float, expected: int) -> None:
    """The traces that are there already count; without a MiB left there is a note and no trace."""
    other = tmp_path / "rank1" / "flight_step7_rank1_trace.json"
    other.parent.mkdir()
    other.write_bytes(bytes(int(used_mb * 1_000_000)))
    captures, program = Captures(tmp_path, max_run_mb=5), Program()
    captures.requests.append("a test")
    for step in range(1, 4):
        captures.made.step_begins(step)
        program.step()
    captures.made.close()
    assert len(captures.traces()) == expected
    assert any("no deep capture" in note and "output_max_mb" in note for note in captures.notes) is (expected == 0)
