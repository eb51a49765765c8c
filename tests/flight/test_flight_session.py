"""A session with a flight recorder: its file, its requests, and nothing left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from waiting import wait_until

import autoprof
from autoprof.session import exclusions, training_steps
from autoprof.session.flight import FILE, FlightRecorder, State, read_flight
from autoprof.session.flight import recorder as recording
from autoprof.session.flight.recorder import MAX_CAPTURES
from autoprof.testing import FakeClock

QUIET: dict[str, Any] = {"sinks": {}, "flops": "off", "monitor": "off", "sample": {"every": 10, "budget": None}}
MS = 1_000_000


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the looks at the training to the test: no thread looks meanwhile."""
    monkeypatch.setattr(FlightRecorder, "start", lambda _: None)


class Training:
    """A session over a small model, and its steps."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        config = {**QUIET, "flight_recorder": {"mode": "on", **options}}
        config["sinks"] = {"log": None}
        self.session: Any = autoprof.instrument(self.model, config, optimizer=self.optimizer)

    @property
    def flight(self) -> FlightRecorder:
        found: FlightRecorder = self.session._steps._listeners._flight
        return found

    @property
    def folder(self) -> Path:
        found: Path = self.session.rank_folder
        return found

    def train(self, steps: int, each: Callable[[int], object] = lambda _: None) -> None:
        for step in range(steps):
            self.model(torch.ones(2, 4)).sum().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            each(step)
            self.session.step()

    def captured(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("flight_*trace.json"))


def test_one_process_has_no_flight_recorder_unless_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several ranks there is one."""
    for world_size, expected in ((1, False), (2, True)):
        monkeypatch.setenv("WORLD_SIZE", str(world_size))
        with Training(mode="auto").session as session:
            assert (session._steps._listeners._flight is not None) is expected
            assert (session.rank_folder / FILE).exists() is expected


@pytest.mark.usefixtures("no_thread")
def test_each_step_is_in_the_ring_also_where_it_is_not_recorded() -> None:
    """One of ten is recorded; the file has all of them, and the state of the session."""
    training = Training()
    training.train(95)
    training.flight.poll()
    flight = read_flight(training.folder / FILE)
    assert (flight.steps, flight.state) == (95, State.TRAINING)
    training.session.close()
    assert read_flight(training.folder / FILE).state is State.CLOSED


@pytest.mark.usefixtures("no_thread")
def test_a_pause_is_a_state_and_no_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation of a second does not lengthen the step around it."""
    clock = FakeClock()
    for module in (recording, training_steps, exclusions):
        monkeypatch.setattr(module, "perf_counter_ns", clock.read)
    training = Training()
    training.train(20, lambda _: clock.advance(10 * MS))
    with training.session.pause("validation"):
        training.flight.poll()
        assert read_flight(training.folder / FILE).state is State.EXCLUDED
        clock.advance(1_000 * MS)
    training.train(1, lambda _: clock.advance(10 * MS))
    assert training.flight.ring.lengths().tolist() == [10 * MS] * 21
    training.session.close()


@pytest.mark.usefixtures("no_thread")
def test_a_file_captures_the_next_steps() -> None:
    """In a gap of unsampled steps too, with a note, and not for ever; the file is removed."""
    training = Training()

    def ask(step: int) -> None:
        if step % 10 == 3:
            training.folder.joinpath("capture.request").touch()
            training.flight.poll()

    training.train(12, ask)
    (captured,) = training.captured()
    assert captured in ("flight_steps5-6_rank0_trace.json", "flight_steps6-7_rank0_trace.json")  # step 4 asked
    training.train(40, ask)
    training.session.close()
    assert len(training.captured()) == MAX_CAPTURES
    asked = "the file capture.request: a deep capture of 2 steps from step"
    assert sum(note.startswith(asked) for note in training.session.summary().notes) == MAX_CAPTURES
    assert not list(training.folder.parent.rglob("capture.request"))


@pytest.mark.usefixtures("no_thread")
def test_a_fork_leaves_the_file_to_its_parent() -> None:
    """A forked process writes no state."""
    training = Training()
    training.train(5)
    child = os.fork()
    if child == 0:
        status = 1
        try:  # without a backward pass, which torch refuses in a fork once a device has had a thread of its own
            for _ in range(3):
                training.model(torch.ones(2, 4))
                training.session.step()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    training.flight.poll()
    flight = read_flight(training.folder / FILE)
    assert (flight.steps, flight.state) == (5, State.TRAINING)
    training.session.close()


def test_a_failure_of_the_recorder_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file cannot be made, and where a look fails; training goes on."""

    replace = os.replace

    def full(*paths: Any) -> Any:
        if not paths or Path(paths[-1]).name == FILE:
            raise OSError(28, "No space left on device")
        return replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        training = Training()
        training.train(3)
        training.session.close()
        assert any("flight recorder is off" in note for note in training.session.summary().notes)
        assert not (training.folder / FILE).exists()
    training = Training()
    monkeypatch.setattr(sys, "_current_frames", full)
    wait_until(lambda: training.session.summary().notes, "the note on the failure")
    training.train(3)
    training.session.close()
    assert any("flight recorder is off after OSError" in note for note in training.session.summary().notes)
