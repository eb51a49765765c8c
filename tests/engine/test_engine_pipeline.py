"""The pipeline by itself: closed steps become frames in slices of time; at the end no part fails for all."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from autoprof import Phase
from autoprof._capture import marks
from autoprof._capture.mark_cost import MarkCost
from autoprof._capture.marks import MarkBatch
from autoprof._capture.recorder import Recorder
from autoprof._notes import Notes
from autoprof._observer import Observer
from autoprof._process import lifecycle
from autoprof._resolve import PENDING, RawStep
from autoprof._session import pipeline
from autoprof._session.pipeline import (
    CROWDED,
    DELIVER_EVERY_NS,
    MAX_DELIVER_FACTOR,
    MAX_SHORT,
    MAX_WITH_EVENTS,
    RECORDED_SLICE_NS,
    SHORT_NS,
    SLICE_NS,
    Pipeline,
)
from autoprof._stats import NO_GAP, OpenGap
from autoprof.devices import Clock
from autoprof.frame import StepFrame
from autoprof.summary import Summary
from autoprof.testing import FakeClock, FakeDevice, ListSink

MS = 1_000_000


class Folder:
    """A run folder that keeps what it is told, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.noted: list[tuple[str, Any]] = []
        self.summaries: list[tuple[Summary, Any]] = []
        self.ends: list[str] = []

    def note(self, key: str, value: Any) -> None:
        if self.error is not None:
            raise self.error
        self.noted.append((key, value))

    def write_summary(self, summary: Summary, report: Any) -> None:
        if self.error is not None:
            raise self.error
        self.summaries.append((summary, report))

    def finish(self, how: str) -> None:
        self.ends.append(how)


class Bench:
    """A pipeline with a clock, and steps that each begin where the last one ended."""

    def __init__(
        self,
        *observers: Observer,
        device: FakeDevice | None = None,
        sinks: Any = None,
        folder: Folder | None = None,
        limit_ns: int = 0,
        even: bool = False,
    ) -> None:
        self.host = FakeClock(limit_ns=limit_ns) if device is None else device.clock
        self.clock: Clock = self.host if device is None else device.device_clock()
        self.recorder = Recorder(self.host)
        self.layer = self.recorder.label("layer", "layer", Phase.FORWARD)
        self.notes, self.sink, self.folder = Notes(), ListSink(), folder or Folder()
        self.pipeline = Pipeline(
            self.recorder,
            self.clock,
            MarkCost(forward_ns=3.0),
            observers=observers,
            sinks=[self.sink] if sinks is None else sinks,
            folder=self.folder,  # type: ignore[arg-type]
            notes=self.notes,
            even=even,
        )
        self.steps = 0
        self._start = self.clock.read()

    def raw(self, calls: int = 1, ns: int = MS, **fields: Any) -> RawStep:
        """Return a step of so many calls, in which ``ns`` pass."""
        self.steps += 1
        codes = [self.layer | marks.ENTER, self.layer | marks.LEAVE] * calls
        readings = [self.clock.read() for _ in codes]
        self.host.advance(ns)
        start, end = self._start, self.clock.read()
        self._start = end
        batch = MarkBatch(codes, readings, 0, fields.pop("multithreaded", False), fields.pop("dropped", 0))
        return RawStep(self.steps, 0, self.steps, self.clock, start, end, batch, **fields)

    def step(self, calls: int = 1, ns: int = MS, **fields: Any) -> RawStep:
        """Submit such a step."""
        raw = self.raw(calls, ns, **fields)
        self.pipeline.submit(raw)
        return raw

    @property
    def passed(self) -> list[int]:
        """The steps whose frames reached the sink."""
        return [frame.step for frame in self.sink.frames]


class Work:
    """The time that autoprof's own work takes, in place of the processor's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 10**12
        monkeypatch.setattr(pipeline, "perf_counter_ns", lambda: self.ns)


class Busy(Observer):
    """Take time for each step and for each frame."""

    provides = "busy part"

    def __init__(self, work: Work, step_ns: int = 0, frame_ns: int = 0) -> None:
        self.work, self.step_ns, self.frame_ns = work, step_ns, frame_ns
        self.completed: list[int] = []

    def complete_step(self, raw: RawStep) -> RawStep:
        self.work.ns += self.step_ns
        self.completed.append(raw.step)
        return raw

    def observe_frame(self, frame: StepFrame) -> None:
        self.work.ns += self.frame_ns


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Return the time of autoprof's own work, which only the test lets pass."""
    return Work(monkeypatch)


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps wait as long as in a training."""
    monkeypatch.setattr(pipeline, "MAX_DELIVER_FACTOR", 12)


# When steps are passed on.


def test_short_steps_are_passed_on_together_every_20_ms(work: Work) -> None:
    """The first one at once; then those of 20 ms, with the step that completes them."""
    bench = Bench()
    seen = []
    for _ in range(43):
        bench.step(ns=MS)
        seen.append(len(bench.passed))
    assert seen == [1] * 20 + [21] * 20 + [41] * 3
    assert DELIVER_EVERY_NS == 20 * MS


@pytest.mark.usefixtures("seldom")
def test_the_longer_passing_on_takes_the_less_often_it_is_done(work: Work) -> None:
    """It takes a hundredth of the time, and steps wait a quarter of a second at most."""
    for spent_ns, pause_ns in ((100_000, 20 * MS), (MS // 4, 25 * MS), (2 * MS, 200 * MS), (20 * MS, 240 * MS)):
        bench = Bench(Busy(work, frame_ns=spent_ns))
        bench.step()
        bench.step(ns=pause_ns - MS)
        assert bench.passed == [1]
        bench.step(ns=MS)
        assert bench.passed[:2] == [1, 2]


def test_as_many_steps_as_half_of_those_that_may_wait_are_passed_on_at_once(work: Work) -> None:
    """However short they are; those that the device has not passed count too."""
    bench = Bench()
    for _ in range(2 * CROWDED):
        bench.step(ns=1)
    assert bench.passed == list(range(1, 1 + CROWDED + 1))
    waiting = Bench(device=FakeDevice(FakeClock(), lag_ns=10**12))
    waiting.step(ns=1)
    for _ in range(CROWDED - 2):
        waiting.step(ns=1)
    assert len(waiting.pipeline._closed) == CROWDED - 2
    waiting.step(ns=1)
    assert len(waiting.pipeline._closed) == 0


def test_after_a_gap_steps_are_passed_on_20_ms_later(work: Work) -> None:
    """Work between the first steps would lengthen them."""
    bench = Bench()
    bench.step()
    bench.host.advance(10**9)
    bench.pipeline.postpone(bench.host.now_ns)
    for _ in range(19):
        bench.step()
    assert bench.passed == [1]
    bench.step()
    assert bench.passed == list(range(1, 22))


@pytest.mark.usefixtures("seldom")
def test_frames_are_passed_on_for_one_slice_of_time_at_the_end_of_a_step(work: Work) -> None:
    """The rest follows at the end of the next steps; those closed meanwhile wait a hundred times as long."""
    bench = Bench(Busy(work, frame_ns=RECORDED_SLICE_NS // 2))
    bench.pipeline.postpone(0)
    for _ in range(6):
        bench.step()
    assert bench.passed == []
    bench.pipeline._due_ns = 0
    seen = []
    for _ in range(6):
        bench.step()
        seen.append(len(bench.passed))
    assert seen == [3, 6, 7, 7, 7, 7]
    assert bench.passed == list(range(1, 8))
    bench.step(ns=100 * 7 * RECORDED_SLICE_NS // 2 - 4 * MS)
    assert bench.passed == list(range(1, 8))
    bench.step(ns=MS)
    assert bench.passed[-3:] == [8, 9, 10]


@pytest.mark.usefixtures("seldom")
def test_even_steps_have_one_short_slice_each_which_may_end_within_a_frame(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as not too many steps wait; then the slices are long ones."""
    bench = Bench(Busy(work, frame_ns=SLICE_NS + 1), even=True)
    bench.pipeline.postpone(0)
    for _ in range(3):
        bench.step()
    bench.pipeline._due_ns = 0
    seen = []
    for _ in range(6):
        bench.step()
        seen.append(len(bench.passed))
    assert seen == [0, 1, 2, 3, 4, 4]
    monkeypatch.setattr(pipeline, "MAX_EVEN", CROWDED)
    monkeypatch.setattr(pipeline, "SHORT_NS", 0)
    many = Bench(Busy(work, frame_ns=RECORDED_SLICE_NS // 2), even=True)
    many.pipeline.postpone(10**15)
    for _ in range(CROWDED):
        many.step(ns=1)
    assert len(many.passed) == 3
    for passed in (3, 4, 5):
        many.step(ns=1)
        assert len(many.passed) == passed


@pytest.mark.usefixtures("seldom")
def test_the_slice_of_even_steps_grows_with_the_step(work: Work) -> None:
    """A step of a second has time for the work of a step: else what is shown live falls ever further behind."""
    bench = Bench(Busy(work, frame_ns=3 * SLICE_NS), even=True)
    for number in range(1, 6):
        bench.step(ns=1_000 * MS)
        assert bench.passed == list(range(1, number + 1))


@pytest.mark.usefixtures("seldom")
def test_even_steps_that_are_short_wait_for_the_gap(work: Work) -> None:
    """As long as there are not too many, and for a quarter of a second: recording alone lengthens them enough."""
    bench = Bench(Busy(work), even=True)
    bench.pipeline.postpone(bench.clock.read())
    for _ in range(MAX_SHORT - 1):
        bench.step(ns=SHORT_NS // 2)
    assert bench.passed == []
    assert bench.pipeline.rest(1.0)
    assert len(bench.passed) == MAX_SHORT - 1
    for _ in range(MAX_SHORT):
        bench.step(ns=1)
    assert len(bench.passed) == 2 * MAX_SHORT - 1
    bench.pipeline._due_ns = 0
    bench.step(ns=MAX_DELIVER_FACTOR * DELIVER_EVERY_NS)
    assert len(bench.passed) == 2 * MAX_SHORT
    bench.pipeline._due_ns = bench.clock.read()
    bench.step(ns=SHORT_NS)
    assert len(bench.passed) == 2 * MAX_SHORT + 1


@pytest.mark.usefixtures("seldom")
@pytest.mark.parametrize("ns", [MS, SHORT_NS // 2])
def test_even_steps_that_the_device_has_passed_are_all_passed_on(work: Work, ns: int) -> None:
    """However long the work for them takes: half of those that may wait have long slices, as uneven steps have."""
    bench = Bench(Busy(work, frame_ns=SLICE_NS + 1), device=FakeDevice(FakeClock()), even=True)
    most = 0
    for _ in range(4 * PENDING):
        bench.step(ns=ns)
        most = max(most, bench.pipeline._waiting)
    bench.pipeline.flush()
    assert bench.passed == list(range(1, 4 * PENDING + 1))
    assert bench.pipeline.summary().skipped == {}
    assert most <= CROWDED + 1


@pytest.mark.usefixtures("seldom")
def test_fewer_short_steps_wait_from_the_move_to_a_device_on(work: Work) -> None:
    """Each of them holds an event for every mark; after a move back to the host they may wait for longer again."""
    bench = Bench(Busy(work), even=True)
    bench.pipeline.use_clock(FakeDevice(bench.host).device_clock())
    bench.pipeline.postpone(bench.clock.read())
    for _ in range(MAX_WITH_EVENTS - 1):
        bench.step(ns=1)
    assert bench.passed == []
    bench.step(ns=1)
    assert bench.passed == list(range(1, MAX_WITH_EVENTS + 1))
    bench.pipeline.use_clock(bench.clock)
    bench.pipeline.postpone(bench.clock.read())
    for _ in range(MAX_WITH_EVENTS):
        bench.step(ns=1)
    assert bench.passed == list(range(1, MAX_WITH_EVENTS + 1))


def test_completing_a_step_uses_the_same_slice_and_one_step_is_always_completed(work: Work) -> None:
    """A step whose FLOPs are counted takes long; those after it wait, in order."""
    busy = Busy(work, step_ns=RECORDED_SLICE_NS + 1)
    bench = Bench(busy)
    bench.pipeline.postpone(0)
    for _ in range(3):
        bench.step()
    bench.pipeline._due_ns = 0
    seen = []
    for _ in range(3):
        bench.step()
        seen.append((busy.completed[-1], bench.passed[-1]))
    assert seen == [(1, 1), (2, 2), (3, 3)]
    bench.pipeline.flush()
    assert bench.passed == [1, 2, 3, 4, 5, 6]


def test_what_a_slice_has_left_of_crowded_steps_is_completed_with_the_next_steps(work: Work) -> None:
    """Were they left until they are due, each step would cost more."""
    busy = Busy(work, step_ns=RECORDED_SLICE_NS // 16)
    bench = Bench(busy)
    bench.pipeline.postpone(bench.host.now_ns)
    for _ in range(CROWDED):
        bench.step(ns=1)
    assert 0 < len(busy.completed) < CROWDED
    for _ in range(4):
        bench.step(ns=1)
    assert bench.passed[-1] > CROWDED


def test_even_steps_are_not_resolved_in_a_slice_that_completing_them_has_used_up(work: Work) -> None:
    """The next one goes on with them."""
    bench = Bench(Busy(work, step_ns=SLICE_NS + 1), even=True)
    bench.step()
    assert bench.pipeline._resolver.waiting == 1
    assert bench.passed == []


def test_address_space_is_checked_once_in_20_ms(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check takes as long as a part of a slice."""
    checked: list[int] = []
    monkeypatch.setattr(pipeline, "require_address_space", lambda: checked.append(work.ns))
    bench = Bench()
    first_ns = work.ns
    for pause_ns in (0, DELIVER_EVERY_NS - 1, 1):
        work.ns += pause_ns
        bench.pipeline.rest(1.0)
    assert checked == [first_ns, first_ns + DELIVER_EVERY_NS]


def test_before_a_gap_what_waits_is_passed_on_and_a_long_slice_asks_for_another_step(work: Work) -> None:
    """``rest`` says whether the gap may go on: nothing waits, and most of the slice was left."""
    bench = Bench(Busy(work, frame_ns=SLICE_NS // 8))
    for _ in range(3):
        bench.step()
    assert bench.pipeline.rest(1.0)
    assert bench.passed == [1, 2, 3]
    for _ in range(5):
        bench.step()
    assert not bench.pipeline.rest(1.0)
    assert bench.passed == list(range(1, 9))
    assert bench.pipeline.rest(1.0)


def test_before_a_gap_a_full_slice_leaves_the_rest_for_later(work: Work) -> None:
    """Each call passes on one slice, which may end within a frame: between an observer that takes long and a sink."""
    bench = Bench(Busy(work, frame_ns=SLICE_NS + 1))
    bench.pipeline.postpone(0)
    for _ in range(3):
        bench.step()
    assert [(bench.pipeline.rest(1.0), len(bench.passed)) for _ in range(5)] == [
        (False, 0),
        (False, 1),
        (False, 2),
        (True, 3),
        (True, 3),
    ]


def test_a_frame_that_was_passed_on_in_part_reaches_its_sinks_once_and_before_the_next(work: Work) -> None:
    """Whatever passes on the rest of it: the end of a recorded step, or a flush."""
    for flush in (True, False):
        bench = Bench(Busy(work, frame_ns=RECORDED_SLICE_NS + 1))
        bench.pipeline.postpone(0)
        bench.step(), bench.step()
        assert not bench.pipeline.rest(1.0)
        assert bench.passed == []
        bench.pipeline._due_ns = 0
        bench.pipeline.flush() if flush else bench.step()
        assert bench.passed == [1, 2]
        bench.pipeline.flush()
        assert bench.passed == list(range(1, bench.steps + 1))


class Live(ListSink):
    """A live sink that is due whenever it is asked; it notes the gap's seconds and whether the collector runs."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float | None] = []
        self.collecting: list[bool] = []
        self.summaries: list[Summary] = []

    def due(self, idle_s: float | None = None) -> bool:
        self.asked.append(idle_s)
        return True

    def show(self, summary: Summary, step: int) -> None:
        self.collecting.append(gc.isenabled())
        self.summaries.append(summary)

    def write(self, frame: StepFrame) -> None:
        super().write(frame)
        self.collecting.append(gc.isenabled())


@pytest.fixture
def whole_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute a live summary at once, however slow the machine."""
    monkeypatch.setattr("autoprof._session.outputs.PART_S", 10**6)


def test_a_live_sink_hears_how_long_the_gap_is(work: Work, whole_summaries: None) -> None:
    """At the end of a step it hears nothing of a gap."""
    live = Live()
    bench = Bench(sinks=[live])
    bench.step()
    bench.pipeline.rest(12.5)
    assert live.asked == [None, 12.5]


def test_the_garbage_collector_is_off_while_frames_and_summaries_are_made(work: Work, whole_summaries: None) -> None:
    """It would run over everything that the program holds; afterwards it is on again."""
    live = Live()
    bench = Bench(sinks=[live])
    bench.step()
    bench.pipeline.rest(1.0)
    assert len(live.collecting) == 3
    assert not any(live.collecting)
    assert gc.isenabled()


def test_a_live_summary_comes_at_the_end_of_another_step_than_a_full_slice(work: Work, whole_summaries: None) -> None:
    """Before the frames of the next slice; where a slice is not used up, both fit into one."""
    live = Live()
    bench = Bench(Busy(work, frame_ns=RECORDED_SLICE_NS + 1), sinks=[live])
    bench.pipeline.postpone(0)
    for _ in range(2):
        bench.step()
    bench.pipeline._due_ns = 0
    seen = []
    for _ in range(4):
        bench.step()
        seen.append((len(live.frames), len(live.summaries)))
    assert seen == [(1, 0), (1, 1), (2, 1), (2, 2)]


class Calibrated(ListSink):
    """A sink that hears the clock's limit."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    def calibrate(self, limit_ns: int) -> None:
        self.limits.append(limit_ns)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_sink_hears_the_clocks_limit_before_the_first_frame(work: Work, flushed: bool) -> None:
    """And again when another clock is read."""
    sink = Calibrated()
    bench = Bench(sinks=[sink], limit_ns=40)
    bench.pipeline.postpone(10**18 * flushed)
    for limit_ns in (40, 40, 7):
        bench.pipeline.use_clock(FakeClock(limit_ns=limit_ns))
        bench.step(ns=DELIVER_EVERY_NS)
        if flushed:
            bench.pipeline.flush()
    assert sink.limits == [40, 7]
    assert len(sink.frames) == 3


# The way of one step.


class Chain(Observer):
    """Add a letter to the step's scalars at each station."""

    def __init__(self, letter: str, seen: list[str]) -> None:
        self.letter, self.seen = letter, seen

    def observe_step(self, raw: RawStep) -> RawStep:
        self.seen.append(f"{self.letter} step {raw.step}")
        return raw._replace(scalars={**raw.scalars, f"observed_{self.letter}": float(len(raw.scalars))})

    def complete_step(self, raw: RawStep) -> RawStep:
        self.seen.append(f"{self.letter} completes {raw.step}")
        return raw._replace(scalars={**raw.scalars, f"completed_{self.letter}": float(len(raw.scalars))})

    def observe_frame(self, frame: StepFrame) -> None:
        self.seen.append(f"{self.letter} frame {frame.step}")


def test_each_observer_takes_the_step_that_the_one_before_has_returned(work: Work) -> None:
    """All observe it, then all complete it, then all see its frame, which has what they added."""
    seen: list[str] = []
    bench = Bench(Chain("a", seen), Chain("b", seen))
    bench.step()
    assert seen == ["a step 1", "b step 1", "a completes 1", "b completes 1", "a frame 1", "b frame 1"]
    assert bench.sink.frames[0].scalars == {"observed_a": 0, "observed_b": 1, "completed_a": 2, "completed_b": 3}


def test_every_observer_is_asked_whether_it_took_long(work: Work) -> None:
    """Each answers once, so none may be left out because another one said yes."""

    class Long(Observer):
        def __init__(self, answers: Iterator[bool]) -> None:
            self.answers = answers

        def took_long(self) -> bool:
            return next(self.answers)

    bench = Bench(Long(iter([True, False, False])), Long(iter([True, True, False])), Observer())
    assert [bench.pipeline.took_long() for _ in range(3)] == [True, True, False]


def test_unsampled_steps_that_no_recorded_one_follows_are_in_the_summary(work: Work) -> None:
    """Where a run ends in a gap."""
    bench = Bench()
    bench.step(ns=MS)
    bench.pipeline.count_unsampled(OpenGap(9, 9 * MS, MS // 10))
    summary = bench.pipeline.summary()
    assert (summary.unsampled_steps, summary.unsampled_ns) == (9, 9 * MS)
    assert summary.overhead == pytest.approx(0.1 / 10.1, rel=1e-3)


def test_a_summary_in_a_gap_counts_its_steps_so_far(work: Work) -> None:
    """Without them the cost of recording would be a share of the recorded steps alone. No later summary keeps them."""
    bench = Bench()
    bench.step(ns=MS)
    bench.pipeline.flush()
    bench.pipeline.open_gap = OpenGap(9, 9 * MS, MS // 10)
    inside = bench.pipeline.summary()
    bench.pipeline.open_gap = NO_GAP
    after = bench.pipeline.summary()
    assert (inside.unsampled_steps, inside.unsampled_ns, inside.run_steps) == (9, 9 * MS, 10)
    assert inside.run_ns == 10 * MS + MS // 10
    assert inside.overhead == pytest.approx(0.1 / 10.1, rel=1e-3)
    assert (after.unsampled_steps, after.run_steps) == (0, 1)
    assert after.overhead < 1e-5


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"warmup": True}, 4),
        ({"warmup": False}, 8),
        ({"warmup": True, "multithreaded": True}, 8),
    ],
)
def test_of_a_long_first_step_that_no_statistics_need_the_first_marks_are_resolved(
    work: Work, monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, Any], kept: int
) -> None:
    """The others count as dropped, and their cost stays in the step's overhead; a step of several threads is whole."""
    monkeypatch.setattr(pipeline, "MAX_FIRST_MARKS", 4)
    bench = Bench()
    bench.step(4, overhead_ns=100, dropped=5, **fields)
    bench.pipeline.postpone(-(10**9))
    bench.step(4, warmup=True)
    bench.pipeline.flush()
    first, second = bench.sink.frames
    assert (len(first.spans), first.dropped) == (kept // 2, 5 + 8 - kept)
    assert first.overhead_ns == 100 + 8 * 3
    assert (len(second.spans), second.dropped) == (4, 0)


def test_a_first_step_as_long_as_the_limit_is_whole(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is dropped."""
    monkeypatch.setattr(pipeline, "MAX_FIRST_MARKS", 8)
    bench = Bench()
    bench.step(4, warmup=True)
    assert (len(bench.sink.frames[0].spans), bench.sink.frames[0].dropped) == (4, 0)


def test_a_first_step_of_a_devices_clock_is_whole(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock takes all its readings back."""
    monkeypatch.setattr(pipeline, "MAX_FIRST_MARKS", 4)
    bench = Bench(device=FakeDevice(FakeClock()))
    bench.step(4, warmup=True)
    assert (len(bench.sink.frames[0].spans), bench.sink.frames[0].dropped) == (4, 0)


# The clock's limits.


def test_the_limit_of_the_clock_is_noted_once_and_passed_to_the_summary(work: Work) -> None:
    """The run's folder has the three numbers it is made of."""
    bench = Bench(limit_ns=40)
    bench.step()
    bench.step()
    assert bench.pipeline.summary().clock_limit_ns == 40
    limits = {"resolution_ns": 40, "mark_ns": 0, "scatter_ns": 0, "limit_ns": 40}
    assert bench.folder.noted == [("clock", limits)]


def test_another_clock_has_a_limit_of_its_own(work: Work) -> None:
    """The model has moved to a device."""
    bench = Bench(limit_ns=40)
    bench.pipeline.use_clock(FakeClock(limit_ns=7))
    assert bench.pipeline.summary().clock_limit_ns == 7
    assert [value["limit_ns"] for _, value in bench.folder.noted] == [40, 7]


def test_a_limit_that_the_device_has_not_shown_yet_is_none(work: Work) -> None:
    """It is noted when the device has passed the readings."""
    device = FakeDevice(FakeClock(tick_ns=2), lag_ns=1_000_000)
    device.clock.limits = None
    bench = Bench(device=device)
    assert bench.pipeline.summary().clock_limit_ns == 0
    assert bench.folder.noted == []
    bench.host.advance(10**9)
    assert bench.pipeline.summary().clock_limit_ns >= 0
    assert [key for key, _ in bench.folder.noted] == ["clock"]


def test_a_limit_that_cannot_be_written_is_passed_on_all_the_same() -> None:
    """The disk is full."""
    bench = Bench(folder=Folder(OSError("no space left")), limit_ns=40)
    assert bench.pipeline.summary().clock_limit_ns == 40
    assert bench.notes.all == ()


# The summary.


class Annotates(Observer):
    """Add a note of its own to the summary, or fail."""

    def __init__(self, provides: str, error: Exception | None = None) -> None:
        self.provides, self.error = provides, error

    def annotate(self, summary: Summary) -> Summary:
        if self.error is not None:
            raise self.error
        return replace(summary, notes=(*summary.notes, self.provides))


def test_an_observer_that_fails_costs_its_own_annotation(work: Work) -> None:
    """The others are in the summary, and a note says what is missing and why."""
    bench = Bench(Annotates("a"), Annotates("throughput", ValueError("no time")), Annotates("b"))
    bench.step()
    assert bench.pipeline.summary().notes == ("no throughput after ValueError: no time", "b")
    assert bench.notes.all == ("no throughput after ValueError: no time",)


def test_a_summary_says_what_was_lost_and_why(work: Work) -> None:
    """Counts of zero are left out."""
    bench = Bench()
    bench.recorder.failures["probe"] = 2
    bench.notes.skip("steps of another thread")
    bench.recorder.untimed["backward of leaves"] = 3
    bench.step()
    batch = MarkBatch([bench.layer | marks.LEAVE], [bench.host.read()], 0, False, 0)
    bench.pipeline.submit(bench.raw()._replace(mark_batch=batch))
    bench.pipeline.flush()
    assert bench.pipeline.summary().skipped == {
        "marks without a counterpart": 1,
        "failures in probe": 2,
        "backward of leaves": 3,
        "steps of another thread": 1,
    }


def test_recomputes_of_another_package_are_noted(work: Work) -> None:
    """Their time is timed only in targets."""
    bench = Bench()
    raw = bench.raw()
    codes = [marks.GRAPH_BEGIN, bench.layer | marks.RECOMPUTE, bench.layer | marks.LEAVE, marks.GRAPH_END]
    bench.pipeline.submit(raw._replace(mark_batch=MarkBatch(codes, [raw.start] * 4, 0, False, 0)))
    bench.pipeline.flush()
    assert pipeline.FOREIGN_RECOMPUTES in bench.pipeline.summary().notes


# The end.


class Seconds:
    """Stand for the host's seconds at the end of a run: ``sleep`` lets them pass, and time on the device's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
        self.slept: list[float] = []
        self.now_s = 1_000.0
        self.clock = clock
        monkeypatch.setattr(pipeline, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(pipeline, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert sum(self.slept) < 10, "the end waits for ever"
        self.now_s += seconds
        self.clock.advance(round(seconds * 1e9))


def hung(monkeypatch: pytest.MonkeyPatch, lag_ns: int) -> tuple[Bench, FakeDevice, Seconds]:
    """Return a pipeline with two steps that wait for a device this late, and the seconds that pass."""
    device = FakeDevice(FakeClock(), lag_ns=lag_ns)
    bench = Bench(device=device)
    for _ in range(2):
        bench.step()
    return bench, device, Seconds(monkeypatch, device.clock)


def test_an_end_without_patience_gives_a_device_that_hangs_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends SIGTERM sends SIGKILL next; the steps that wait are counted."""
    bench, device, seconds = hung(monkeypatch, 10**15)
    bench.pipeline.finish(patient=False)
    assert sum(seconds.slept) == pytest.approx(pipeline.PATIENCE_S, abs=0.01)
    assert device.waits == 0
    bench.pipeline.close("SIGTERM")
    assert bench.passed == []
    assert bench.sink.summary is not None
    assert bench.sink.summary.skipped == {"steps that the device had not passed": 2}


def test_an_end_without_patience_takes_the_steps_that_the_device_passes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends as soon as none waits."""
    bench, device, seconds = hung(monkeypatch, 500 * MS)
    bench.pipeline.finish(patient=False)
    assert bench.passed == [1, 2]
    assert sum(seconds.slept) == pytest.approx(0.5, abs=0.01)
    assert device.waits == 0


def test_a_patient_end_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it takes, without asking again and again."""
    bench, device, seconds = hung(monkeypatch, 10**12)
    bench.pipeline.finish(patient=True)
    assert bench.passed == [1, 2]
    assert seconds.slept == []
    assert device.waits > 0


class Ends(Observer):
    """Note the calls at the end of a run, or fail in one of them."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[Any] = []
        self.fails = fails

    def _call(self, name: str, value: Any) -> None:
        self.calls.append(value)
        if name == self.fails:
            raise ValueError(name)

    def finish(self, *, complete: bool) -> None:
        self._call("finish", complete)

    def annotate(self, summary: Summary) -> Summary:
        self._call("annotate", "annotate")
        return summary

    def run_info(self) -> Mapping[str, Any]:
        self._call("run_info", "run_info")
        return {"one": 1, "two": 2}

    def close(self) -> None:
        self._call("close", "close")


@pytest.mark.parametrize(
    ("how", "ended_well", "complete"),
    [
        (pipeline.CLOSED, False, True),
        (lifecycle.EXIT, True, True),
        (lifecycle.EXIT, False, False),
        ("SIGTERM", True, False),
    ],
)
def test_postponed_work_is_done_where_a_run_ends_well(
    how: str, ended_well: bool, complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed by its own call, or at the end of a program without an error."""
    monkeypatch.setattr(lifecycle, "ended_well", lambda: ended_well)
    ends = Ends()
    bench = Bench(ends)
    bench.step()
    bench.pipeline.close(how)
    assert ends.calls == [complete, "annotate", "close", "run_info"]
    assert bench.folder.ends == [how]
    assert [one for one in bench.folder.noted if one[0] != "clock"] == [("one", 1), ("two", 2)]
    ((summary, report),) = bench.folder.summaries
    assert summary is bench.sink.summary
    assert any("layer" in line for line in report)


def test_an_observer_that_is_added_in_a_run_is_one_as_any_other() -> None:
    """It takes the frames from then on, annotates the summary, and is part of the end."""

    class Late(Ends):
        def observe_frame(self, frame: StepFrame) -> None:
            self.calls.append(frame.step)

    late, bench = Late(), Bench()
    bench.step()
    bench.pipeline.follow(late)
    bench.step()
    bench.pipeline.flush()
    bench.pipeline.close(pipeline.CLOSED)
    assert late.calls == [2, True, "annotate", "close", "run_info"]


@pytest.mark.parametrize("fails", ["finish", "annotate", "run_info", "close"])
def test_an_observer_that_fails_at_the_end_costs_nobody_elses_end(fails: str) -> None:
    """The others are called as ever, the reports are written, and a note says what failed."""
    broken, whole = Ends(fails), Ends()
    bench = Bench(broken, whole)
    bench.step()
    bench.pipeline.close(pipeline.CLOSED)
    assert "close" in broken.calls
    assert set(whole.calls) - {"run_info"} == {True, "annotate", "close"}
    assert bench.folder.ends == [pipeline.CLOSED]
    assert len(bench.folder.summaries) == 1
    assert bench.sink.summary is not None
    assert bench.sink.summary.steps == 1
    (note,) = bench.notes.all
    assert note == ("no  after " if fails == "annotate" else "at the end of the run: ") + f"ValueError: {fails}"


def test_without_a_summary_everything_is_closed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinks receive an empty one, which says why."""
    bench = Bench()
    bench.step()

    def fail(*_args: Any, **_more: Any) -> Summary:
        raise MemoryError("no room")

    monkeypatch.setattr(bench.pipeline._aggregate, "summary", fail)
    bench.pipeline.close(pipeline.CLOSED)
    assert bench.sink.summary is not None
    assert bench.sink.summary.notes == ("no summary after MemoryError: no room",)
    assert bench.folder.ends == [pipeline.CLOSED]


def test_a_folder_that_fails_at_the_end_costs_its_files() -> None:
    """The sinks receive the summary."""
    bench = Bench(Ends(), folder=Folder(OSError("no space left")))
    bench.step()
    bench.pipeline.close(pipeline.CLOSED)
    assert bench.folder.ends == [pipeline.CLOSED]
    assert bench.sink.summary is not None
    assert bench.sink.summary.steps == 1
    assert bench.notes.all == ("at the end of the run: OSError: no space left",)


def test_the_garbage_collector_is_on_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an exception of a signal handler left a block in which it is off."""
    bench = Bench()
    bench.pipeline._gc_paused.__enter__()
    assert not gc.isenabled()
    bench.pipeline.close(pipeline.CLOSED)
    assert gc.isenabled()


def test_a_fork_closes_no_sink_and_writes_no_file() -> None:
    """They belong to its parent; its observers' threads and files are closed."""
    ends = Ends()
    bench = Bench(ends)
    bench.step()
    bench.pipeline.abandon()
    assert ends.calls == ["close"]
    bench.pipeline.close(pipeline.CLOSED)
    assert bench.sink.summary is None
    assert (bench.folder.ends, bench.folder.summaries) == ([], [])
