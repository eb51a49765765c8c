"""Steps that repeat the step before end in C; whatever else happens in a step, it ends in Python as it always did."""

from __future__ import annotations

import struct
from time import perf_counter_ns, time_ns
from typing import Any

import pytest
import torch
from engine_laws import check_laws, everything
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import autoprof
from autoprof._capture.marks import extension, uses_extension
from autoprof._session import pipeline
from autoprof._session import repeats as ends
from autoprof._session.repeats import Repeats
from autoprof.frame import StepFrame
from autoprof.summary import Summary
from autoprof.testing import ListSink

needs_c = pytest.mark.skipif(not uses_extension(), reason="the extension in C was not built")

PASSED_OVER = ["no_grad", "update", "zero"]
EVENTS = ["log", "pause", "eval", "twice", "batch", "span", "logged", "summary", "fetch", "frozen", "plain"]
ANY = ["", "called first", *PASSED_OVER, *PASSED_OVER, *EVENTS]
LONG_NS = 10**15


@pytest.fixture(autouse=True)
def hooks_in() -> None:
    """Run each test once: where marks are made in Python, steps end there too."""


class Net(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.second(self.first(x))
        return found


class Run:
    """A session of every step on the real clock, whose ends in C do not depend on the machine's speed."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, in_c: bool = True, sinks: bool = True, **changes: Any
    ) -> None:
        monkeypatch.setattr(pipeline, "DELIVER_EVERY_NS", LONG_NS)
        monkeypatch.setattr(pipeline, "RECORDED_SLICE_NS", LONG_NS)
        monkeypatch.setattr(ends, "MAX_EXCESS_NS", LONG_NS if in_c else -LONG_NS)
        torch.manual_seed(0)
        self.model, self.sink = Net(), ListSink()
        self.session: Any = autoprof.instrument(self.model, everything(**changes), sinks=[self.sink] if sinks else [])
        self.in_c = 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.5)

    def step(self, event: str = "") -> None:
        """Train one step in which this happens."""
        model, session = self.model, self.session
        if event in ("update", "zero"):
            self.optimizer.zero_grad()
        if event == "called first":
            model.second(torch.ones(1, 2))
        elif event == "fetch":
            next(iter(session.loader([torch.ones(1, 2)])))
        elif event == "pause":
            with session.pause():
                model(torch.ones(1, 2))
        elif event == "frozen":
            with torch.no_grad():
                model.first(torch.ones(1, 2))
        elif event == "eval":
            model.eval()
            with torch.no_grad():
                model(torch.ones(1, 2))
            model.train()
        loss = model(torch.ones(3 if event == "batch" else 1, 2)).sum()
        if event == "twice":
            loss = loss + model(torch.ones(1, 2)).sum()
        elif event == "span":
            with autoprof.span("mine"):
                loss = loss + 1
        elif event == "log":
            session.log(loss=loss, samples=3)
        elif event == "no_grad":
            with torch.no_grad():
                loss.item()
        elif event == "logged":
            autoprof.log_timing("elsewhere", 0.001)
        elif event == "summary":
            session.summary()
        if event != "plain":
            loss.backward()
        if event == "update":
            self.optimizer.step()
        waited = self.waiting
        session.step()
        self.in_c += self.waiting > waited

    @property
    def waiting(self) -> int:
        """The steps that ended in C and were not taken yet."""
        native = self.session._steps._repeats._native
        return 0 if native is None else native.steps

    def close(self) -> Summary:
        """End the run and return its summary."""
        self.session.close()
        assert self.sink.summary is not None
        return self.sink.summary


def described(frames: list[StepFrame]) -> list[Any]:
    """Return all that is not measured."""
    return [
        (
            frame.step,
            [(span.name, span.phase, span.parent, span.calls, span.lane) for span in frame.spans],
            frame.micro_steps,
            frame.warmup,
            frame.dropped,
            {name: value for name, value in frame.scalars.items() if not name.startswith("host_")},
        )
        for frame in frames
    ]


def counted(summary: Summary) -> Any:
    """Return the counts of a summary."""
    rows = {(row.name, row.phase): (row.calls, row.steps) for row in summary.rows}
    excluded = [(one.name, one.times, one.steps) for one in summary.excluded]
    return summary.steps, summary.warmup_steps, rows, excluded, summary.skipped, summary.dropped, summary.micro_steps


@needs_c
@given(events=st.lists(st.sampled_from(ANY), min_size=1, max_size=24))
@settings(max_examples=25)
def test_whatever_happens_the_frames_are_those_of_steps_that_end_in_python(events: list[str]) -> None:
    """The same spans, scalars and counts, in the same steps; and the law of the account in each."""
    found = []
    for in_c in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            run = Run(patch, in_c=in_c)
            for event in events:
                run.step(event)
            summary = run.close()
        for frame in run.sink.frames:
            check_laws(frame)
        found.append((described(run.sink.frames), counted(summary)))
        assert in_c or not run.in_c
    assert found[0] == found[1]


@needs_c
@pytest.mark.parametrize("event", EVENTS)
def test_a_step_with_an_event_ends_in_python(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before it ended in C, and so does the second one after it."""
    run = Run(monkeypatch)
    for _ in range(3):
        run.step()
    assert run.in_c == 2
    run.step(event)
    assert run.in_c == 2
    run.step()
    run.step()
    run.step()
    assert run.in_c >= 3
    run.close()


@needs_c
@pytest.mark.parametrize("each", PASSED_OVER)
def test_steps_with_updates_and_blocks_without_gradients_end_in_c(each: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks before the first training forward are compared like all others; blocks after it belong to the step."""
    run = Run(monkeypatch)
    for _ in range(8):
        run.step(each)
    assert run.in_c == 7
    run.close()


@needs_c
def test_a_step_that_first_calls_a_module_ends_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """That call may be validation: how regular it is decides."""
    run = Run(monkeypatch)
    for _ in range(8):
        run.step("called first")
    assert run.in_c == 0
    run.close()


@needs_c
def test_steps_that_end_in_c_follow_each_other_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their lengths add up to the time from the first start to the last end, and each knows when it began."""
    run = Run(monkeypatch)
    begun, began = time_ns(), perf_counter_ns()
    for _ in range(12):
        run.step()
    elapsed = perf_counter_ns() - began
    run.close()
    frames = run.sink.frames
    assert run.in_c == 11
    assert [frame.step for frame in frames] == list(range(1, 13))
    assert sum(frame.duration_ns for frame in frames[1:]) <= elapsed
    starts = [frame.start_unix_ns for frame in frames]
    assert starts == sorted(starts)
    assert begun - 10**9 < starts[-1] < time_ns()
    assert all(frame.overhead_ns > 0 for frame in frames)


@needs_c
def test_a_backward_of_an_earlier_step_belongs_to_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that end in C count as steps between a call and its backward."""
    found = []
    for in_c in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            run = Run(patch, in_c=in_c)
            run.step()
            kept = run.model.first(torch.ones(1, 2)).sum()
            for _ in range(5):
                run.step()
            kept.backward()
            run.step()
            run.close()
        found.append(described(run.sink.frames))
    assert found[0] == found[1]


@needs_c
def test_steps_end_in_c_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of a session with nothing but its model asks to be called before each step."""
    run = Run(monkeypatch)
    run.step()
    assert run.session._steps._repeats.are_expected
    assert not run.session._steps._listeners
    run.close()


@needs_c
def test_few_steps_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the steps are, memory is bounded: the step that finds no room ends in Python and passes all on."""
    run = Run(monkeypatch)
    most = 0
    for _ in range(3 * pipeline.CROWDED):
        run.step()
        most = max(most, run.waiting)
    assert most == pipeline.CROWDED - 1
    assert len(run.sink.frames) >= 2 * pipeline.CROWDED
    run.close()


@needs_c
def test_more_steps_wait_where_nothing_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a sink, statistics are made at a summary, or where no more steps may wait."""
    run = Run(monkeypatch, sinks=False)
    most = 0
    for _ in range(3 * pipeline.MAX_UNSEEN):
        run.step()
        most = max(most, run.waiting)
    assert most == pipeline.MAX_UNSEEN - 1
    assert run.session.summary().steps == 3 * pipeline.MAX_UNSEEN
    run.session.close()


@needs_c
@pytest.mark.parametrize("sinks", [False, True])
def test_steps_wait_longer_where_nothing_shows_them(sinks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sink no longer than steps that end in Python."""
    run = Run(monkeypatch, sinks=sinks)
    monkeypatch.setattr(pipeline, "DELIVER_EVERY_NS", 20)
    line = run.session._pipeline
    assert line.due_ns - line._due_ns == (0 if sinks else 480)
    run.session.close()


@needs_c
def test_a_due_delivery_ends_a_step_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live display and the records on disk are no later than without ends in C."""
    run = Run(monkeypatch)
    monkeypatch.setattr(pipeline, "DELIVER_EVERY_NS", 0)
    for _ in range(5):
        run.step()
    assert run.in_c <= 1
    assert len(run.sink.frames) >= 3
    run.close()


@needs_c
def test_a_long_step_ends_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than those before it: a full garbage collection or a compilation may have been in it."""
    run = Run(monkeypatch)
    monkeypatch.setattr(ends, "MAX_EXCESS_NS", -LONG_NS)
    for _ in range(3):
        run.step()
    assert run.in_c == 0
    run.close()


@needs_c
def test_how_long_a_step_may_be_follows_the_shortest_of_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of any length end in C; one with a collection in it does so after none that had one, too."""
    run = Run(monkeypatch)
    repeats, limits = run.session._steps._repeats, []

    class Native:
        def begin(self, *, most_ns: int, **_rest: object) -> None:
            limits.append(most_ns - LONG_NS)

    run.step()
    raw = run.session._steps._last
    monkeypatch.setattr(repeats, "_native", Native())
    for ms in (30, 80, 20, *[25] * ends.COMPARED_STEPS):
        raw = raw._replace(end=raw.start + ms)
        repeats.begin(raw, 0, before=0, events=tuple, room=1, due_ns=raw.end + 1)
    assert limits[:3] == [30, 30, 20]
    assert limits[-1] == 25
    monkeypatch.undo()
    run.close()


@pytest.mark.parametrize("sample", [{"every": 2, "budget": None}, {"budget": 0.01}])
def test_under_a_budget_and_with_every_steps_end_in_python(
    sample: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the sampler decides at each end."""
    run = Run(monkeypatch, sample={"warmup": 0, **sample})
    for _ in range(6):
        run.step()
    assert run.in_c == 0
    run.close()


@needs_c
def test_samples_of_the_model_are_those_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that end in C count with their batch in the throughput."""
    run = Run(monkeypatch)
    for _ in range(10):
        run.step("batch")
    summary = run.close()
    assert run.in_c >= 8
    assert [frame.scalars.get("samples") for frame in run.sink.frames] == [3.0] * 10
    assert summary.throughput_unit == "samples"


@needs_c
def test_after_close_no_step_ends_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step after it only warns."""
    run = Run(monkeypatch)
    for _ in range(4):
        run.step()
    summary = run.close()
    assert summary.steps == 4
    assert run.session._end_repeat() is False


@needs_c
def test_a_failure_when_steps_are_taken_switches_the_recording_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noted, and the program goes on."""
    run = Run(monkeypatch)
    run.step()
    run.step()
    monkeypatch.setattr(Repeats, "take", lambda _self: 1 / 0)
    run.session.log(loss=1)
    monkeypatch.undo()
    run.step()
    summary = run.close()
    assert any("recording is off after" in note for note in summary.notes)


# The object in C.


class Bench:
    """The object in C with a buffer of its own."""

    def __init__(self, **changes: Any) -> None:
        self.buffer = extension.MarkBuffer(7, 100)
        self.matcher = extension.CallMatcher()
        self.passes = extension.PassState()
        self.model = nn.Identity()
        self.anchor = torch.ones(1)
        self.events: list[Any] = []
        self.nodes: dict[int, Any] = {}
        self.repeats = extension.Repeats(self.buffer, self.matcher, self.model, self.anchor, self.passes)
        self.hook = self.repeats.forward_pre_hook(self._fallback, self._fail)
        self.fallen_back = 0
        self.start_ns = perf_counter_ns()
        self.arguments: dict[str, Any] = {
            "codes": struct.pack("qq", 16, 19),
            "before": 0,
            "calls": (3,),
            "begun": 1,
            "reached": 1,
            "events": (self.events, set(), {}),
            "per_step": (self.nodes,),
            "start_ns": self.start_ns,
            "start_unix_ns": 5,
            "due_ns": 2**62,
            "most_ns": LONG_NS,
            "limit": 3,
            **changes,
        }
        self.repeats.begin(**self.arguments)

    def _fallback(self, *_args: Any) -> None:
        self.fallen_back += 1

    def _fail(self, _owner: Any, _module: Any, error: Exception) -> None:
        raise error

    def act(self) -> None:
        """Do what the step that is repeated did."""
        self.hook(None, self.model, (), {})
        self.buffer.extend((16, 100, 19, 200))
        self.matcher.numbers.append(3)
        self.passes.begun = self.passes.reached = 1
        self.nodes[1] = [7, 16]


@needs_c
def test_an_equal_step_becomes_a_row_and_the_next_one_is_open() -> None:
    """Readings between the Unix time, the cost of the end and the time of the end; all state begins anew."""
    bench = Bench()
    bench.act()
    bench.matcher.spent_ns = 50_000
    assert bench.repeats.end() is True
    assert (len(bench.buffer), bench.matcher.numbers, bench.nodes, bench.matcher.spent_ns) == (0, [], {}, 0)
    assert (bench.passes.begun, bench.passes.reached, bench.buffer.serial) == (0, 0, 8)
    assert bench.buffer.next_ordinal() == 1 << 24
    count, rows, start_ns, start_unix_ns, saw_forward = bench.repeats.take()
    unix, cost, *readings, end = struct.unpack("5q", rows)
    assert (count, unix, readings, saw_forward) == (1, 5, [100, 200], False)
    assert 50_000 < cost < 10**9
    assert bench.start_ns < end == start_ns <= perf_counter_ns()
    assert abs(start_unix_ns - time_ns()) < 10**9
    assert bench.repeats.take() is None
    assert bench.repeats.end() is False


def _other_codes(bench: Bench) -> None:
    bench.buffer[0] = 32


def _object(bench: Bench) -> None:
    bench.buffer.extend((16, object()))


DIFFERENCES = {
    "another code": _other_codes,
    "a further mark": lambda bench: bench.buffer.extend((16, 1)),
    "a reading that is no integer": _object,
    "a further call": lambda bench: bench.matcher.numbers.append(3),
    "no call": lambda bench: bench.matcher.numbers.clear(),
    "another call": lambda bench: bench.matcher.numbers.__setitem__(0, 4),
    "a further pass": lambda bench: setattr(bench.passes, "begun", 2),
    "a pass that reached no hook": lambda bench: setattr(bench.passes, "reached", 0),
    "an event": lambda bench: bench.events.append(1),
}


@needs_c
@pytest.mark.parametrize("difference", DIFFERENCES)
def test_a_different_step_is_left_as_it_is(difference: str) -> None:
    """Python then ends it: nothing has been changed."""
    bench = Bench()
    bench.act()
    DIFFERENCES[difference](bench)
    before = len(bench.buffer), [*bench.matcher.numbers], {**bench.nodes}, bench.passes.begun, bench.buffer.serial
    assert bench.repeats.end() is False
    after = len(bench.buffer), [*bench.matcher.numbers], {**bench.nodes}, bench.passes.begun, bench.buffer.serial
    assert before == after


@needs_c
@pytest.mark.parametrize(
    "changes",
    [
        {"due_ns": 0},
        {"most_ns": 0},
        {"limit": 0},
        {"codes": struct.pack("qq", -16, 19)},
        {"calls": (0,) * 99},
        {"before": -1},
        {"before": 3},
    ],
)
def test_some_steps_are_never_repeated(changes: dict[str, Any]) -> None:
    """Where work is due, where they take too long, and where a mark refers to another step."""
    bench = Bench(**changes)
    bench.act()
    assert bench.repeats.end() is False


@needs_c
def test_a_step_without_a_training_forward_first_is_not_repeated() -> None:
    """The hook hands every other forward over to Python."""
    bench = Bench()
    bench.hook(None, nn.Identity(), (), {})
    bench.model.eval()
    bench.hook(None, bench.model, (), {})
    bench.model.train()
    with torch.no_grad():
        bench.hook(None, bench.model, (), {})
    bench.buffer.extend((16, 100))
    bench.hook(None, bench.model, (), {})
    assert bench.fallen_back == 4
    assert not bench.repeats.saw_forward
    bench.buffer.extend((19, 200))
    bench.matcher.numbers.append(3)
    bench.passes.begun = bench.passes.reached = 1
    assert bench.repeats.end() is False


@needs_c
def test_the_marks_before_the_forward_are_compared_there() -> None:
    """A forward after other marks, or after more of them, is none that the step before began with."""
    bench = Bench(before=1)
    for codes in ((), (32,), (16, 19)):
        bench.buffer.clear()
        bench.buffer.extend(tuple(item for code in codes for item in (code, 1)))
        bench.hook(None, bench.model, (), {})
        assert not bench.repeats.saw_forward
    bench.buffer.clear()
    bench.buffer.extend((16, 100))
    bench.hook(None, bench.model, (), {})
    assert bench.repeats.saw_forward
    assert bench.fallen_back == 3


@needs_c
def test_as_many_steps_as_there_is_room_for_are_kept() -> None:
    """The next one ends in Python."""
    bench = Bench()
    ended = []
    for _ in range(4):
        bench.act()
        ended.append(bench.repeats.end())
    assert ended == [True, True, True, False]
    count, rows, *_ = bench.repeats.take()
    assert (count, len(rows)) == (3, 3 * 5 * 8)


@needs_c
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"events": ("text",)}, TypeError),
        ({"per_step": (set(),)}, TypeError),
        ({"codes": "text"}, TypeError),
        ({"limit": 1 << 60}, MemoryError),
    ],
)
def test_what_cannot_be_begun_is_an_error(changes: dict[str, Any], error: type[Exception]) -> None:
    """And no step is repeated then."""
    with pytest.raises(error):
        Bench(**changes)


@needs_c
def test_steps_that_were_not_taken_are_not_overwritten() -> None:
    """A begin that forgets them is an error."""
    bench = Bench()
    bench.act()
    assert bench.repeats.end()
    with pytest.raises(RuntimeError, match="not been taken"):
        bench.repeats.begin(**bench.arguments)
