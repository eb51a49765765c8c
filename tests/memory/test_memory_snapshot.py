"""The allocator's snapshot: for a window of steps, or when memory runs out; recording is never left on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import autoprof
from autoprof._flight.snapshot import SnapshotWindow, bounded
from autoprof.devices.cuda import CudaHistory
from autoprof.errors import ConfigError
from autoprof.sinks import load_config


class FakeHistory:
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


def wanted(**options: Any) -> Any:
    return load_config({"memory_snapshot": options}).memory_snapshot


def window(folder: Path, fake: FakeHistory, rank: int = 0, **options: Any) -> tuple[SnapshotWindow, list[str]]:
    notes: list[str] = []
    return SnapshotWindow(wanted(**options), folder, rank, notes.append, fake), notes


def test_a_window_of_steps_is_recorded_and_written(tmp_path: Path) -> None:
    """From the start of the first step to the end of the last; the rank is in the file's name."""
    history = FakeHistory()
    one, notes = window(tmp_path, history, rank=3, first=2, window=2)
    one.begin()
    assert history.calls == []
    one.step_begins(2)
    assert history.calls == ["start 100000 python"]
    one.step_begins(3)
    one.step_begins(4)
    assert history.calls == ["start 100000 python", "snapshot", "stop"]
    for step in range(5, 10):
        one.step_begins(step)
    one.close()
    assert history.calls == ["start 100000 python", "snapshot", "stop"]
    (path,) = tmp_path.iterdir()
    assert path.name == "memory_snapshot_rank3.pickle"
    assert pickle.loads(path.read_bytes())["device_traces"] == [[0, 1, 2, 3], []]
    assert notes == [
        "memory_snapshot_rank3.pickle has the allocations of steps 2 to 3; their times include the cost of recording"
    ]


def test_a_run_that_ends_within_the_window_writes_what_there_is(tmp_path: Path) -> None:
    """And stops recording."""
    history = FakeHistory()
    one, _ = window(tmp_path, history, first=1, window=100)
    one.begin()
    one.step_begins(2)
    one.close()
    assert (history.on, [path.name for path in tmp_path.iterdir()]) == (False, ["memory_snapshot_rank0.pickle"])
    one.close()
    assert history.calls.count("snapshot") == 1


def test_a_recording_of_the_users_is_left_alone(tmp_path: Path) -> None:
    """Its snapshot is taken; the recording is neither started nor stopped."""
    history = FakeHistory(on=True)
    one, _ = window(tmp_path, history, first=1, window=1)
    one.begin()
    one.step_begins(2)
    one.close()
    assert history.calls == ["snapshot"]
    assert history.on


def test_a_failure_says_so_once_and_stops_recording(tmp_path: Path) -> None:
    """The training goes on without a snapshot."""
    history = FakeHistory()
    history.fails = True
    one, notes = window(tmp_path, history, first=1, window=1)
    one.begin()
    one.step_begins(2)
    one.step_begins(3)
    one.close()
    assert notes == ["memory_snapshot is off after RuntimeError: no snapshot"]
    assert not history.on
    assert list(tmp_path.iterdir()) == []


def test_when_memory_runs_out_what_is_held_is_written(tmp_path: Path) -> None:
    """A file of its own, over the last one, and not for ever."""
    history = FakeHistory()
    one, _ = window(tmp_path, history, first=None, oom=True)
    one.begin()
    try:
        assert history.calls == []
        for _ in range(10):
            for call in history.observers:
                call()
        assert history.calls == ["snapshot"] * 4
        assert [path.name for path in tmp_path.iterdir()] == ["memory_snapshot_rank0_oom.pickle"]
    finally:
        one.close()


def test_an_observer_that_outlives_its_session_does_nothing(tmp_path: Path) -> None:
    """torch cannot take it off: it stays, and looks for open windows."""
    history = FakeHistory()
    first, _ = window(tmp_path, history, first=None, oom=True)
    first.begin()
    first.close()
    second, _ = window(tmp_path, history, first=None, oom=True)
    second.begin()
    second.close()
    for call in history.observers:
        call()
    assert history.observers
    assert history.calls == []


def test_without_a_device_it_says_so(tmp_path: Path) -> None:
    """Without a device no recording is started."""
    history = FakeHistory(there=False)
    one, notes = window(tmp_path, history, first=1, oom=True)
    one.begin()
    one.step_begins(2)
    one.close()
    assert notes == ["memory_snapshot: there is no CUDA device, so no snapshot is written"]
    assert (history.calls, history.observers) == ([], [])


def test_a_file_has_a_largest_size() -> None:
    """The older half of the history goes until it fits; the blocks that are held stay."""
    snapshot = {"segments": [1], "device_traces": [list(range(10_000)), list(range(10))]}
    content = bounded(snapshot, 6_000)
    assert content is not None
    kept = pickle.loads(content)
    assert len(content) <= 6_000
    assert kept["segments"] == [1]
    assert kept["device_traces"][0][-1] == 9_999
    assert bounded({"segments": list(range(10_000)), "device_traces": [[]]}, 100) is None
    assert len(snapshot["device_traces"][0]) == 10_000


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
    history = CudaHistory()
    history.start(entries=7, stacks="python")
    assert history.recording()
    history.stop()
    history.stop()
    assert torch_history == [("all", {"max_entries": 7, "stacks": "python"}), (None, {})]
    assert torch.cuda.memory._record_memory_history is before


def test_a_session_writes_the_file_into_its_folder(torch_history: list[Any], tmp_path: Path) -> None:
    """Also when no sink writes files; steps that are not sampled count as steps."""
    model = nn.Linear(2, 2)
    config = {
        "targets": [{"match": ".*"}],
        "output": str(tmp_path),
        "sinks": {},
        "sample": {"every": 3, "warmup": 0},
        "memory_snapshot": {"first": 2, "window": 1},
    }
    with autoprof.instrument(model, config) as session:
        for _ in range(3):
            model(torch.ones(2))
            session.step()
        assert torch_history[-1] == (None, {})
    (path,) = tmp_path.rglob("memory_snapshot*")
    assert path.relative_to(tmp_path).parts[1:] == ("rank0", "memory_snapshot_rank0.pickle")
    assert any("memory_snapshot_rank0.pickle has the allocations of step 2" in note for note in session.summary().notes)


@pytest.mark.parametrize("wrong", [{"first": 0}, {"window": 0}, {"oom": "yes"}])
def test_what_cannot_be_is_refused_at_set_up(wrong: dict[str, Any]) -> None:
    """With the key that is wrong."""
    with pytest.raises(ConfigError, match=f"memory_snapshot.{next(iter(wrong))}"):
        load_config({"memory_snapshot": wrong})
