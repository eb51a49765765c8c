"""The allocator's snapshot when memory runs out, and its recording, which is never left on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import autoprof
from autoprof.devices import AllocatorHistory
from autoprof.errors import ConfigError
from autoprof.session.flight.snapshot import AllocatorRecording, OomSnapshot
from autoprof.sinks import load_config


class FakeHistory(AllocatorHistory):
    """An allocator's recording that keeps its calls."""

    def __init__(self, *, there: bool = True, on: bool = False, events: int = 4) -> None:
        self.there, self.on, self.events = there, on, events
        self.calls: list[str] = []
        self.observers: list[Callable[[], None]] = []
        self.fails = False

    def available(self) -> bool:
        return self.there

    def recording(self) -> bool:
        return self.on

    def start(self, *, entries: int, stacks: str) -> None:
        self.calls.append(f"start {entries} {stacks}")
        self.on = True

    def stop(self) -> None:
        self.calls.append("stop")
        self.on = False

    def snapshot(self) -> dict[str, Any]:
        if self.fails:
            raise RuntimeError("no snapshot")
        self.calls.append("snapshot")
        return {"segments": [{"address": 1}], "device_traces": [list(range(self.events)), []]}

    def on_oom(self, call: Callable[[], None]) -> None:
        self.observers.append(call)


def opened(folder: Path, fake: FakeHistory, rank: int = 0) -> tuple[OomSnapshot, list[str]]:
    notes: list[str] = []
    one = OomSnapshot(folder, rank, notes.append, fake)
    one.open()
    return one, notes


@pytest.mark.parametrize("on", [False, True])
def test_a_recording_of_the_users_goes_on(tmp_path: Path, on: bool) -> None:
    """A recording that the program has begun is neither started again nor stopped; another one is both."""
    history = FakeHistory(on=on)
    recording = AllocatorRecording(history)
    recording.start()
    recording.write(tmp_path / "snapshot.pickle")
    recording.stop()
    assert history.calls == (["snapshot"] if on else ["start 100000 python", "snapshot", "stop"])
    assert history.on is on
    assert pickle.loads((tmp_path / "snapshot.pickle").read_bytes())["device_traces"] == [[0, 1, 2, 3], []]


def test_a_failure_says_so_once(tmp_path: Path) -> None:
    """The training goes on without a snapshot."""
    history = FakeHistory()
    history.fails = True
    one, notes = opened(tmp_path, history)
    for _ in range(2):
        history.observers[0]()
    one.close()
    assert notes == ["memory_snapshot is off after RuntimeError: no snapshot"]
    assert list(tmp_path.iterdir()) == []


def test_when_memory_runs_out_what_is_held_is_written(tmp_path: Path) -> None:
    """A file of its own, over the last one, and not for ever."""
    history = FakeHistory()
    one, _ = opened(tmp_path, history, rank=3)
    try:
        assert history.calls == []
        for _ in range(10):
            for call in history.observers:
                call()
        assert history.calls == ["snapshot"] * 4
        assert [path.name for path in tmp_path.iterdir()] == ["memory_snapshot_rank3_oom.pickle"]
    finally:
        one.close()


def test_an_observer_that_outlives_its_session_does_nothing(tmp_path: Path) -> None:
    """torch cannot take it off: it stays, and looks for open windows."""
    history = FakeHistory()
    for _ in range(2):
        one, _ = opened(tmp_path, history)
        one.close()
    for call in history.observers:
        call()
    assert history.observers
    assert history.calls == []


def test_without_a_device_it_says_so(tmp_path: Path) -> None:
    """Without a device nothing is observed."""
    history = FakeHistory(there=False)
    one, notes = opened(tmp_path, history)
    one.close()
    assert notes == ["memory_snapshot: there is no CUDA device, so no snapshot is written"]
    assert (history.calls, history.observers) == ([], [])


# In a session, and against torch's own functions.


@pytest.fixture
def torch_history(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Put fakes where torch has the functions of a CUDA allocator."""
    calls: list[Any] = []
    state = {"on": False}

    def record(enabled: str | None = "all", **given: Any) -> None:
        calls.append((enabled, given))
        state["on"] = enabled is not None

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", record)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"segments": [], "device_traces": [[1]]})
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: state["on"], raising=False)
    return calls


def test_torch_is_asked_to_record_and_to_stop(torch_history: list[Any]) -> None:
    """And its function is the one that was there before."""
    before = torch.cuda.memory._record_memory_history
    history = AllocatorHistory()
    history.start(entries=7, stacks="python")
    assert history.recording()
    history.stop()
    assert torch_history == [("all", {"max_entries": 7, "stacks": "python"}), (None, {})]
    assert torch.cuda.memory._record_memory_history is before


def test_a_session_without_a_device_says_so(tmp_path: Path) -> None:
    """The report has the note, also when no sink writes files."""
    config = {"output": str(tmp_path), "sinks": {}, "memory_snapshot": {}}
    with autoprof.instrument(nn.Linear(2, 2), config) as session:
        session.step()
    assert any("there is no CUDA device" in note for note in session.summary().notes)


@pytest.mark.parametrize("wrong", [{"first": 1}, {"oom": "yes"}])
def test_what_cannot_be_is_refused_at_set_up(wrong: dict[str, Any]) -> None:
    """With the key that is wrong."""
    with pytest.raises(ConfigError, match=f"memory_snapshot.{next(iter(wrong))}"):
        load_config({"memory_snapshot": wrong})
