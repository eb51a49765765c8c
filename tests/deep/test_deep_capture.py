"""``with autoprof.deep_capture(…)``: names in the trace, files, limits, and nobody harmed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import is_marked
from deep_builders import TARGETS, Program, ranges
from torch.profiler import ProfilerActivity, profile, record_function

import autoprof
from autoprof.devices import AllocatorHistory
from autoprof.errors import SessionError
from autoprof.session.deep_capture import DeepCapture
from autoprof.session.flight import profiler as profiler_module
from autoprof.session.flight.capture import Capture, CaptureOptions
from autoprof.testing import ListSink

QUIET = {"sinks": {}, "flops": "off", "sample": {"budget": None, "warmup": 0}}
LAYERS = ["Block0", "Block0/FFN", "Block1", "Block1/FFN"]


def captured(program: Program, steps: int = 2, **options: Any) -> DeepCapture:
    with autoprof.deep_capture(program.model, TARGETS, **options) as capture:
        for step in range(steps):
            if step:
                capture.step()
            program.step()
    return capture


def test_the_trace_has_the_targets_names() -> None:
    """The forward of each layer, in each step, nested as they run."""
    capture = captured(Program())
    names = [name for name in ranges(capture.files[0]) if not name.startswith("Optimizer")]
    assert names == ["ProfilerStep#1", *LAYERS, "ProfilerStep#2", *LAYERS]
    assert capture.notes == []


def rows(capture: DeepCapture) -> dict[str, Any]:
    """Return the rows of ``key_averages`` by name."""
    assert capture.result is not None
    return {row.key: row for row in capture.result}


def test_layers_have_times_and_memory() -> None:
    """As rows of torch's own table, and in the file, in the order of their first calls."""
    capture = captured(Program())
    found = rows(capture)
    assert [found[name].count for name in LAYERS] == [2] * 4
    assert found["Block0"].cpu_time_total > found["Block0/FFN"].cpu_time_total > 0
    assert found["Block0"].cpu_memory_usage > 0
    assert capture.steps == (1, 2)
    text = capture.files[1].read_text(encoding="utf-8")
    assert text.startswith("Deep capture of steps 1 to 2, rank 0")
    assert [line.split()[0] for line in text.splitlines() if line.strip().startswith("Block")][:4] == LAYERS
    assert "aten::addmm" in text
    assert text.strip() == capture.table().strip()


def test_names_of_any_script_are_in_the_trace(tmp_path: Path) -> None:
    """Chinese names and quotes, of targets and of ``record``: the file is whole JSON and holds them."""
    program = Program()
    config = {"targets": [{"match": r"blocks\.0", "name": '时间"块 100%'}]}
    with autoprof.deep_capture(program.model, config) as capture:
        capture.record("损失 \\ x", program.step)
    names = set(ranges(capture.files[0]))
    assert {'时间"块 100%', "损失 \\ x"} <= names
    assert "损失 \\ x" in rows(capture)
    assert '时间"块 100%' in capture.table()


def test_every_file_has_the_rank_and_none_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another capture of the same name gets a number behind it."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    first, second = captured(Program(), folder="out"), captured(Program(), folder="out")
    assert [path.name for path in first.files] == ["deep_rank3_trace.json", "deep_rank3_tables.txt"]
    assert all(path.exists() and "rank3" in path.name for path in first.files + second.files)
    assert not set(first.files) & set(second.files)
    assert not list(Path("out").glob("*.part*"))


def test_results_are_the_same_to_the_last_bit() -> None:
    """Parameters after some steps inside a capture, and the random state."""
    bare, seen = Program(), Program()
    for _ in range(3):
        bare.step()
    states = [torch.get_rng_state()]
    captured(seen, steps=3)
    states.append(torch.get_rng_state())
    assert torch.equal(*states)
    pairs = zip(bare.model.parameters(), seen.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_an_exception_leaves_unchanged_and_everything_is_off() -> None:
    """The profiler is stopped, the hooks are gone, and what ran until then is in the trace."""
    program, error = Program(), ValueError("mine")
    capture = autoprof.deep_capture(program.model, TARGETS)

    def fail() -> None:
        with capture:
            program.step()
            raise error

    with pytest.raises(ValueError, match="mine") as raised:
        fail()
    assert raised.value is error
    assert capture.result is not None
    assert not torch.autograd._profiler_enabled()
    assert all(not is_marked(one) for one in program.model.modules())


def test_beside_a_running_profiler_it_is_refused() -> None:
    """Two at once would break both: the user's goes on, whole, and a note says why there is no trace."""
    program = Program()
    with profile(activities=[ProfilerActivity.CPU]) as users:
        capture = captured(program)
        with record_function("after"):
            program.step()
    assert capture.refused is not None
    assert "another torch.profiler is running" in capture.notes[0]
    assert capture.files == ()
    assert "no trace: another torch.profiler" in capture.table()
    assert "after" in [event.name for event in users.events()]
    assert all(not is_marked(one) for one in program.model.modules())


def test_it_gives_way_to_a_profiler_that_starts_inside() -> None:
    """The user's gets all that it would have had; ours has what came before."""
    program = Program()
    with autoprof.deep_capture(program.model, TARGETS) as capture:
        program.step()
        with profile(activities=[ProfilerActivity.CPU]) as users:
            program.step()
        program.step()
    assert "ended early: another torch.profiler started" in capture.notes[0]
    assert rows(capture)["Block0"].count == 1
    found = [event.name for event in users.events()]
    assert "aten::addmm" in found
    users.export_chrome_trace("users.json")
    assert json.loads(Path("users.json").read_text(encoding="utf-8"))["traceEvents"]


def test_it_ends_after_as_many_steps_as_it_may_have() -> None:
    """A block around a whole training does not fill memory; the rest runs as if nothing were there."""
    capture = captured(Program(), steps=5, max_steps=2)
    assert capture.result is not None
    assert capture.steps == (1, 2)
    assert "ended after 2 steps" in capture.notes[0]


def test_without_a_model_optimizer_steps_are_counted() -> None:
    """Without a call of ``step`` all is one step, and it is bounded all the same."""
    program = Program()
    with autoprof.deep_capture(max_steps=2) as capture:
        for _ in range(4):
            capture.record("my step", program.step)
    assert capture.result is not None
    assert capture.steps == (1,)
    assert "ended after 2 steps" in capture.notes[0]


def test_record_returns_what_the_function_returns_and_raises() -> None:
    """Inside and outside of a capture."""
    with autoprof.deep_capture() as capture:
        assert capture.record("sum", sum, [1, 2]) == 3
        with pytest.raises(ZeroDivisionError):
            capture.record("fails", lambda: 1 // 0)
    assert capture.record("later", sum, [1, 2]) == 3
    assert capture.result is not None
    assert {"sum", "fails"} <= {row.key for row in capture.result}


def test_a_trace_that_is_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is known by its events before it is on the disk."""
    monkeypatch.setattr(profiler_module, "MAX_EVENTS", 10)
    capture = captured(Program())
    assert "ask for fewer steps" in (capture.refused or "")
    assert list(Path("deep").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_raised() -> None:
    """The block runs; the profiler was never started."""
    Path("file").write_text("", encoding="utf-8")
    program = Program()
    capture = captured(program, folder="file/inside")
    assert capture.refused is not None
    assert capture.result is None


def test_names_come_from_the_open_session() -> None:
    """Its targets, its steps by their numbers; its report says what there was to say, and keeps the steps apart."""
    program = Program()
    sink, config = ListSink(), {**QUIET, **TARGETS}
    with autoprof.instrument(program.model, config, optimizer=program.optimizer, sinks=[sink]) as session:
        for _ in range(3):
            program.step()
            session.step()
        with autoprof.deep_capture(max_steps=2, folder="out") as capture:
            for _ in range(4):
                program.step()
                session.step()
        program.step()
        session.step()
        summary = session.summary()
    assert capture.steps == (4, 5)
    assert [rows(capture)[name].count for name in LAYERS] == [2] * 4
    assert any("ended after 2 steps" in note for note in summary.notes)
    assert summary.steps + summary.warmup_steps == 8
    warmup = {frame.step for frame in sink.frames if frame.warmup}  # and a step after a long pass
    assert warmup >= {4, 5, 6}  # the two, and the one that has the time of their end


def test_a_session_in_a_gap_records_the_steps_of_a_capture() -> None:
    """The steps that its sampling leaves alone end early, and their count stays right."""
    program = Program()
    config = {"sinks": {}, "flops": "off", "sample": {"every": 100, "budget": None, "warmup": 0}, **TARGETS}
    with autoprof.instrument(program.model, config, optimizer=program.optimizer) as session:
        for _ in range(5):  # the first is recorded, the others are not
            program.step()
            session.step()
        with autoprof.deep_capture(folder="out") as capture:
            for _ in range(3):
                program.step()
                session.step()
        summary = session.summary()
    assert capture.steps == (7, 8, 9)  # the sixth was under way and is not recorded; the ninth has begun
    assert summary.steps + summary.warmup_steps == 3


class History(AllocatorHistory):
    """An allocator that records."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def available(self) -> bool:
        return True

    def recording(self) -> bool:
        return False

    def start(self, *, entries: int, stacks: str) -> None:
        self.said.append("start")

    def stop(self) -> None:
        self.said.append("stop")

    def snapshot(self) -> dict[str, Any]:
        return {"segments": [], "device_traces": [[1, 2]]}

    def on_oom(self, call: Any) -> None:
        raise AssertionError("not asked for")


def test_the_allocators_snapshot_is_written_with_the_rank(tmp_path: Path) -> None:
    """Recording starts and ends with the capture."""
    history, notes = History(), []
    capture = Capture(CaptureOptions(snapshot=True), tmp_path, "deep", 2, warn=notes.append, history=history)
    assert capture.begin()
    capture.end()
    assert history.said == ["start", "stop"]
    assert capture.files[-1] == tmp_path / "deep_rank2_memory_snapshot.pickle"
    assert capture.files[-1].exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_device_there_is_no_snapshot_and_a_note() -> None:
    """And activities that are not there are named."""
    capture = captured(Program(), snapshot=True, activities=["cpu", "cuda"])
    assert sorted(note.partition(": ")[2][:20] for note in capture.notes) == [
        "there is no CUDA dev", "torch cannot record ",
    ]  # fmt: skip
    assert capture.result is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, r"max_steps is 0; allowed: a whole number from 1 to 100"),
        ({"shapes": "yes"}, r"shapes is 'yes'; allowed: True or False"),
        ({"activities": ["gpu"]}, r"activities: 'gpu' is unknown; allowed: cpu, cuda"),
        ({"model": 3}, r"model is a int; it must be an nn\.Module"),
        ({"config": {}}, r"config names modules of a model; give the model"),
    ],
)
def test_wrong_options_are_errors_at_once(options: dict[str, Any], message: str) -> None:
    """Before anything runs."""
    with pytest.raises(SessionError, match=message):
        autoprof.deep_capture(**options)
