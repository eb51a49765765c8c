"""Hangs: a step that does not end, with a thread that stays in one place. Time is the test's."""

from __future__ import annotations

from typing import Any

import pytest

from autoprof.session.flight.ring import StepRing
from autoprof.session.flight.stack import Activity
from autoprof.session.flight.watch import HANG_FACTOR, StepWatch

S = 1_000_000_000
MS = 1_000_000
CODE = (lambda: None).__code__
STILL = Activity(site="train.py:3 main", signature=((CODE, 4),))


class Program:
    """A training whose time and stack the test chooses."""

    def __init__(self, steps: int = 20, length_ns: int = 100 * MS, hang_s: float = 2.0) -> None:
        self.ring = StepRing(0)
        self.activity, self.waits = STILL, False
        self.watch = StepWatch(self.ring, lambda: (self.activity, self.waits), hang_s=hang_s)
        self.now_ns = self.looked_ns = 0
        for _ in range(steps):
            self.step(length_ns)

    def step(self, length_ns: int) -> None:
        self.now_ns += length_ns
        self.ring.end_step(self.now_ns)
        if self.now_ns - self.looked_ns >= S:
            self.look()

    def look(self) -> list[str]:
        """Look as the recorder's thread does, once a second; return the hang if one was found now."""
        self.looked_ns = self.now_ns
        hang = self.watch.poll(self.now_ns)[1]
        return [] if hang is None else [str(hang)]

    def wait(self, seconds: float, *, moves: bool = False) -> list[str]:
        """Let time pass in the open step; return the hangs found."""
        found, until = list[str](), self.now_ns + round(seconds * S)
        while self.now_ns < until:
            self.now_ns = min(max(self.looked_ns + S, self.now_ns), until)
            if moves:
                self.activity = self.activity._replace(signature=((CODE, self.now_ns),))
            if self.now_ns - self.looked_ns >= S:
                found += self.look()
        return found


def test_a_step_that_does_not_end_is_a_hang_reported_once() -> None:
    """By 20 times the usual length, and by ``hang_s``; the next step ends it."""
    program = Program()
    assert program.wait(1.8) == []
    assert program.wait(5) == ["step 21 has not ended for 3.0 s (usual: 100.0 ms)"]
    assert program.watch.hang is not None
    program.step(0)
    program.step(100 * MS)
    assert program.wait(0.6) == []
    assert program.watch.hang is None
    assert len(program.wait(60)) == 1


@pytest.mark.parametrize("usual_s", [0.1, 1.0])
def test_longer_steps_have_more_time(usual_s: float) -> None:
    """A hang is no shorter than 20 usual steps."""
    program = Program(length_ns=round(usual_s * S))
    assert program.wait(HANG_FACTOR * usual_s * 0.9) == []
    assert len(program.wait(HANG_FACTOR * usual_s * 0.5 + 2)) == 1


def test_a_step_as_long_as_one_before_is_no_hang() -> None:
    """An epoch's first step that starts workers took 5 s: the next one may take three times as long."""
    program = Program()
    program.step(5 * S)
    program.step(100 * MS)
    program.step(600 * MS)
    assert program.wait(14) == []
    assert len(program.wait(3)) == 1


def test_the_first_steps_are_no_hang() -> None:
    """They compile; no usual length is known."""
    assert Program(steps=9).wait(1000) == []
    assert Program(steps=0).wait(1000) == []


def test_excluded_time_is_no_hang() -> None:
    """Validation, saving and pauses that the session knows."""
    program = Program()
    program.ring.pause(True)
    assert program.wait(1000) == []
    program.ring.pause(False)
    program.ring.exclude(1000 * S)
    assert program.wait(1) == []


@pytest.mark.parametrize("changed", [{"excluded": "compile"}, {"excluded": "checkpoint"}, {"site": None}])
def test_work_that_belongs_to_no_step_is_no_hang(changed: dict[str, Any]) -> None:
    """Compiling, saving, and a notebook that waits for its next cell."""
    program = Program()
    program.activity = STILL._replace(**changed)
    assert program.wait(1000) == []


def test_a_thread_that_moves_does_not_hang() -> None:
    """A long evaluation in the middle of a step goes from line to line."""
    program = Program()
    assert program.wait(100, moves=True) == []
    assert len(program.wait(3)) == 1


def test_a_wait_for_other_ranks_is_a_hang_too() -> None:
    """Each rank reports its own state: rank 0 tells which one the others wait for."""
    program = Program()
    program.activity, program.waits = Activity(phase="comm", collective="all_reduce"), True
    assert len(program.wait(4)) == 1
    assert program.watch.hang is not None
    assert program.watch.hang.look.waits
