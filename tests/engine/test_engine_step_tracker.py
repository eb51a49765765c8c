"""The step tracker by itself: what a step is made of, gaps, pauses, moves to a device, and failures."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autoprof import Phase
from autoprof._capture.marks import ENTER, LOGGED, PAUSE, UNPAUSE
from autoprof._capture.other_threads import NO_OTHER_MARKS, OtherMarks
from autoprof._capture.recorder import Recorder
from autoprof._notes import Notes
from autoprof._resolve import RawStep
from autoprof._session import step_tracker
from autoprof._session.step_tracker import Following, StepTracker, as_scalar
from autoprof._stats import NO_GAP, OpenGap
from autoprof.testing import FakeAllocator, FakeClock, FakeDevice


def now_ns() -> int:
    """Return the time that the step tracker reads."""
    return int(step_tracker.perf_counter_ns())  # type: ignore[attr-defined]


class Sampling:
    """Sampling that does as it is told and notes what it is asked."""

    instrumented = frozenset({"layer"})
    cut = 3

    def __init__(self, *gaps: int) -> None:
        self.gaps = iter(gaps)
        self.calls: list[tuple[Any, ...]] = []
        self.gap_remaining = 0
        self.in_gap = False
        self.steps_in_gap = 0
        self.goes_on: list[bool] = []
        self.note: str | None = None
        self.early = 0
        self.records_other_threads = True

    def _note(self, *call: Any) -> None:
        self.calls.append(call)

    def begin_step(self) -> None:
        self._note("begin_step")

    def begin_recorded(self, number: int) -> None:
        self._note("begin_recorded", number)

    def end_recorded(self, now_ns: int) -> None:
        self._note("end_recorded", now_ns)

    def exclude_own(self, ns: int) -> None:
        self._note("exclude_own", ns)

    def switch(self, on: bool) -> None:
        self._note("switch", on)

    def start_clocks(self) -> None:
        self._note("start_clocks")

    def close(self, step: int, marks: int, paid_ns: int, ended_ns: int, ended_cpu_ns: int, other: OtherMarks) -> int:
        self._note("close", step, marks, paid_ns)
        return next(self.gaps, 0)

    def cost_of(self, other: OtherMarks) -> int:
        return other.ns

    def begin_gap(self, steps: int, per_step: int) -> int:
        self._note("begin_gap", steps, per_step)
        self.gap_remaining, self.in_gap = steps * per_step, True
        return now_ns()

    def check_gap(self, now_ns: int) -> bool:
        self._note("check_gap", now_ns)
        return self.goes_on.pop(0) if self.goes_on else False

    def end_gap(self, now_ns: int, in_gap_ns: int = 0) -> tuple[int, int]:
        self._note("end_gap", now_ns, in_gap_ns)
        self.gap_remaining, self.in_gap = 0, False
        return 5, 5_000

    def open_gap(self) -> tuple[int, int]:
        return 2, 2_000

    def abort_gap(self) -> tuple[int, int]:
        return 2, 2_000

    def end_gap_early(self) -> int:
        return self.early

    def describe_change(self, step: int) -> str | None:
        return self.note and f"{self.note} from {step}"

    def exclude_pause(self, ns: int, cpu_ns: int = 0) -> None:
        self._note("exclude_pause", ns, cpu_ns)

    def reserve(self, first: int, count: int) -> None:
        self._note("reserve", first, count)

    def release(self, first: int, count: int) -> None:
        self._note("release", first, count)

    def detach_all(self) -> None:
        self._note("detach_all")
        raise ValueError("a probe")

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the calls of these names."""
        return [call for call in self.calls if call[0] in names]


class Pipeline:
    """A pipeline that keeps the steps, and notes what it is told."""

    def __init__(self) -> None:
        self.raws: list[RawStep] = []
        self.calls: list[tuple[Any, ...]] = []
        self.long = False
        self.open_gap = NO_GAP
        self.error: BaseException | None = None

    def submit(self, raw: RawStep) -> None:
        if self.error is not None:
            raise self.error
        self.raws.append(raw)

    def took_long(self) -> bool:
        return self.long

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in ("release_end", "make_due_pass", "count_unsampled", "use_clock", "finish", "resume_gc"):
            raise AttributeError(name)

        def note(*what: Any, **more: Any) -> None:
            self.calls.append((name, *what, *more.values()))

        return note


class Bench:
    """A step tracker on a fake clock."""

    def __init__(self, *gaps: int, device: FakeDevice | None = None, **more: Any) -> None:
        self.host = FakeClock(1_000) if device is None else device.clock
        self.clock: Any = self.host if device is None else device.device_clock()
        self.recorder = Recorder(self.clock)
        self.sampling, self.pipeline, self.notes = Sampling(*gaps), Pipeline(), Notes()
        self.allocator = FakeAllocator(1 << 20, base_bytes=64)
        self.tracker = StepTracker(
            self.recorder,
            self.clock,
            self.allocator,
            self.sampling,  # type: ignore[arg-type]
            self.pipeline,  # type: ignore[arg-type]
            self.notes,
            **more,
        )
        self.tracker.start()

    def end(self, ns: int = 100, **more: Any) -> Following:
        """Let time pass and end the step."""
        self.host.advance(ns)
        return self.end_now(**more)

    def end_now(self, work: Callable[[], object] = int, **more: Any) -> Following:
        """End the step after this work of autoprof's own."""
        self.tracker.begin_work()
        began_ns = now_ns()
        work()
        following = self.tracker.end(began_ns, **more)
        self.tracker.end_work()
        return following


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the time of autoprof's own work; each reading takes a nanosecond."""
    time = SimpleNamespace(ns=5_000_000)

    def read() -> int:
        time.ns += 1
        return int(time.ns)

    monkeypatch.setattr(step_tracker, "perf_counter_ns", read)
    monkeypatch.setattr(step_tracker, "thread_time_ns", lambda: time.ns)
    monkeypatch.setattr(step_tracker, "time_ns", lambda: 77)
    return time


def pass_time(time: SimpleNamespace, ns: int) -> None:
    """Let this time of autoprof's own work pass."""
    time.ns += ns


def test_steps_join_without_a_gap_and_have_what_was_logged_in_them() -> None:
    """Each begins with the reading that ended the one before."""
    bench = Bench()
    bench.tracker.log("loss", 2)
    assert bench.end(100) is Following.RECORDED
    bench.tracker.log("loss", torch.tensor(3.0))
    bench.end(200)
    first, second = bench.pipeline.raws
    assert (first.step, first.start, first.end, first.scalars) == (1, 1_000, 1_100, {"loss": 2.0})
    assert (second.step, second.start, second.end, second.scalars) == (2, 1_100, 1_300, {"loss": 3.0})
    assert first.start_unix_ns == 77
    assert first.memory == {"allocated_bytes": 64, "reserved_bytes": 64, "peak_bytes": 64, "inactive_split_bytes": 0}
    assert (first.instrumented, first.cut) == (frozenset({"layer"}), 3)
    assert (bench.tracker.count, bench.tracker.ended) == (2, 2)


def test_a_step_begins_at_the_wall_clock_time_of_its_first_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work between the end of a step and the next one may take milliseconds, and is part of the next one."""
    bench = Bench()
    wall = iter(range(1_000, 10_000))
    monkeypatch.setattr(step_tracker, "time_ns", lambda: next(wall))
    before = bench.pipeline.submit

    def submit(raw: Any) -> None:
        for _ in range(500):
            next(wall)
        before(raw)

    monkeypatch.setattr(bench.pipeline, "submit", submit)
    bench.end()
    bench.end()
    assert bench.pipeline.raws[1].start_unix_ns == 1_000


def test_the_marks_of_a_step_are_taken_with_its_number() -> None:
    """And their count is what sampling hears."""
    bench = Bench()
    bench.recorder.append(ENTER, 1_050, get_ident())
    bench.end()
    bench.end()
    first, second = bench.pipeline.raws
    assert (first.mark_batch.codes, second.mark_batch.codes) == ([ENTER], [])
    assert second.serial > first.serial
    assert [call[:3] for call in bench.sampling.of("close")] == [("close", 1, 1), ("close", 2, 0)]


def test_a_recorded_step_has_its_begin_and_its_end_with_the_number() -> None:
    """And autoprof's own work between two steps belongs to neither."""
    bench = Bench()
    bench.end()
    bench.end()
    calls = [call[0] for call in bench.sampling.of("begin_recorded", "end_recorded", "exclude_own")]
    assert calls[-6:] == ["end_recorded", "begin_recorded", "exclude_own"] * 2
    assert [call[1] for call in bench.sampling.of("begin_recorded")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("more", "warmups"),
    [
        ({}, [False] * 3),
        ({"warmup": 2}, [True, True, False]),
        ({"listeners": [lambda step: step == 2, lambda _step: "yes"]}, [False, True, False]),
    ],
)
def test_the_first_steps_and_those_that_a_listener_excludes_are_warm_up_steps(
    more: dict[str, Any], warmups: list[bool]
) -> None:
    """A listener has to return True itself."""
    bench = Bench(**more)
    for _ in range(3):
        bench.end()
    assert [raw.warmup for raw in bench.pipeline.raws] == warmups


def test_the_step_after_long_work_is_a_warm_up_step_and_so_is_one_excluded_by_hand() -> None:
    """The caches are cold."""
    bench = Bench()
    bench.pipeline.long = True
    bench.end()
    bench.pipeline.long = False
    bench.end()
    bench.tracker.exclude_open()
    bench.end()
    assert [raw.warmup for raw in bench.pipeline.raws] == [False, True, True]


def test_a_step_that_held_several_training_steps_counts_as_so_many() -> None:
    """All but the last are unsampled, and that one is a warm-up step."""
    bench = Bench()
    bench.end(100, held=1)
    bench.end(400, held=4)
    bench.end(100)
    assert [(raw.step, raw.warmup, raw.gap_steps, raw.gap_ns) for raw in bench.pipeline.raws] == [
        (1, False, 0, 0),
        (5, True, 3, 300),
        (6, False, 0, 0),
    ]


def test_the_overhead_of_a_step_is_autoprofs_work_since_the_last_one(time: SimpleNamespace) -> None:
    """That of the end before it, of the meters, which begin anew, and of other threads."""
    meter = SimpleNamespace(spent_ns=40)
    bench = Bench(cost_meters=[meter])
    bench.end_now(lambda: pass_time(time, 500))
    bench.end()
    bench.end()
    overheads = [raw.overhead_ns for raw in bench.pipeline.raws]
    assert overheads[0] == 40
    assert 500 < overheads[1] < 510
    assert 0 < overheads[2] < 10
    assert meter.spent_ns == 0


def test_sampling_hears_of_the_work_inside_the_steps(time: SimpleNamespace) -> None:
    """The meters count it; a gap after the step begins with all of it paid."""
    meter = SimpleNamespace(spent_ns=40)
    bench = Bench(0, 3, cost_meters=[meter])
    paid = []
    for spent_ns in (50_000, 70_000):
        meter.spent_ns = spent_ns
        bench.end_now()
        paid.append(bench.sampling.of("close")[-1][-1])
    assert 50_000 <= paid[0] < 51_000
    assert 120_000 <= paid[1] < 121_000


def test_sampling_hears_all_work_so_far(time: SimpleNamespace) -> None:
    """With that of this step's end up to now."""
    bench = Bench()
    for _ in range(2):
        bench.end_now(lambda: pass_time(time, 500))
    paid = [call[3] for call in bench.sampling.of("close")]
    assert 500 < paid[0] < 510
    assert 1_000 < paid[1] < 1_020


def test_sampling_hears_of_what_the_recorder_sums_inside_the_steps() -> None:
    """Shapes and experts: the sampler counts the work that the overhead shows."""
    bench = Bench()
    bench.recorder.detail_ns = 5_000
    bench.end()
    bench.end()
    paid = [call[3] for call in bench.sampling.of("close")]
    assert 5_000 < paid[0] < paid[1] < 6_000


# Gaps.


def test_after_a_gap_a_step_begins_once_its_probes_are_attached() -> None:
    """It knows the steps of the gap, their time, the units logged in it, and autoprof's work at its ends."""
    bench = Bench(7)
    assert bench.end(100) is Following.UNSAMPLED
    assert bench.tracker.open is None
    assert bench.sampling.of("begin_gap") == [("begin_gap", 7, 1)]
    assert bench.pipeline.calls == [("release_end", bench.pipeline.raws[0])]
    for value in (2, 3.5):
        bench.tracker.log("samples", value)
        bench.tracker.log("loss", value)
    bench.tracker.log("samples", torch.tensor([4.0]))
    bench.sampling.steps_in_gap = 4
    assert (bench.tracker.count, bench.tracker.ended) == (1, 5)
    bench.sampling.gap_remaining, bench.sampling.note = 0, "some are recorded"
    assert bench.end(900) is Following.RECORDED
    assert bench.notes.all == ("some are recorded from 7",)
    bench.end(50)
    bench.end(50)
    _, after, later = bench.pipeline.raws
    assert (after.step, after.start, after.end, after.gap_steps, after.gap_ns) == (7, 2_000, 2_050, 5, 5_000)
    assert after.gap_scalars == {"samples": [9.5]}
    assert 0 < after.gap_overhead_ns < 20
    assert (later.step, later.gap_steps, later.gap_scalars, later.gap_overhead_ns) == (8, 0, {}, 0)


def test_optimizer_steps_count_a_gap_where_steps_end_by_themselves() -> None:
    """It begins inside of a step, and its end leaves the next forward to begin one."""
    bench = Bench(7)
    bench.end(optimizer_steps=2)
    assert bench.sampling.of("begin_gap") == [("begin_gap", 7, 2)]
    assert bench.end(optimizer_steps=2) is Following.AFTER_GAP
    bench.sampling.gap_remaining = 0
    assert bench.end(optimizer_steps=2) is Following.RECORDED
    none = Bench(7)
    none.end(optimizer_steps=0)
    assert none.sampling.of("begin_gap") == [("begin_gap", 7, 1)]


def test_at_the_end_of_a_part_of_a_gap_a_pass_may_be_due() -> None:
    """What waits is shown before the next recorded step."""
    bench = Bench(7)
    bench.end()
    bench.sampling.goes_on = [True, True]
    bench.pipeline.calls.clear()
    assert bench.end() is Following.UNSAMPLED
    assert bench.end() is Following.UNSAMPLED
    assert bench.pipeline.calls == [("make_due_pass",)] * 2
    assert bench.end() is Following.RECORDED


def test_work_between_unsampled_steps_is_no_part_of_their_time(time: SimpleNamespace) -> None:
    """Sampling hears of that of the gap that ends; the next gap begins without any."""
    bench = Bench(7, 7)

    def make_due_pass() -> None:
        time.ns += 300

    bench.pipeline.make_due_pass = make_due_pass  # type: ignore[attr-defined]
    works = []
    for parts in (2, 1):
        bench.end()
        bench.sampling.goes_on = [True] * parts
        for _ in range(parts):
            bench.end()
        bench.tracker.count_gap()
        works.append((2_000 - bench.pipeline.open_gap.elapsed_ns) // 100)
        bench.end()
        works.append(bench.sampling.of("end_gap")[-1][2] // 100)
    assert works == [6, 6, 3, 3]


def test_the_overhead_of_the_present_gap_is_the_work_since_the_last_recorded_step(time: SimpleNamespace) -> None:
    """That of earlier steps is in the steps."""
    bench = Bench(0, 7)
    for work_ns in (500, 20):
        bench.end_now(lambda work_ns=work_ns: pass_time(time, work_ns))  # type: ignore[misc]
    bench.tracker.count_gap()
    assert 20 < bench.pipeline.open_gap.overhead_ns < 40


def test_other_threads_are_noted_once_they_are_off_or_more_than_a_step_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Being off is the more important note."""
    for on, exceeded, notes in ((True, False, ()), (True, True, "cut"), (False, True, "off")):
        bench = Bench()
        bench.sampling.records_other_threads = on
        take = bench.recorder.take
        other = OtherMarks(marks=3, ns=30, exceeded=exceeded)
        monkeypatch.setattr(bench.recorder, "take", lambda take=take, other=other: take()._replace(other=other))
        bench.end()
        assert bench.pipeline.raws[0].overhead_ns == 30
        expected = {"cut": (step_tracker.OTHER_THREADS_CUT,), "off": (step_tracker.OTHER_THREADS_OFF,), (): ()}
        assert bench.notes.all == expected[notes]
    assert NO_OTHER_MARKS.ns == 0


def test_a_step_after_a_gap_that_held_several_training_steps_has_the_gaps_too() -> None:
    """The steps and the time of both."""
    bench = Bench(7)
    bench.end()
    bench.sampling.gap_remaining = 0
    bench.end()
    bench.end(100, held=2)
    raw = bench.pipeline.raws[1]
    assert (raw.step, raw.gap_steps, raw.gap_ns) == (8, 5 + 1, 5_000 + 50)


# Followers.


def test_a_follower_hears_the_open_step_and_the_next_ones_which_are_reserved() -> None:
    """A gap is ended for it; undone, it hears no more."""
    bench = Bench()
    bench.end()
    bench.sampling.early = 4
    heard: list[int] = []
    undo = bench.tracker.follow(lambda step: heard.append(step) or True, 3)  # type: ignore[func-returns-value]
    assert bench.sampling.of("reserve") == [("reserve", 3, 8)]
    bench.end()
    undo()
    undo()
    bench.end()
    assert heard == [2, 3]
    assert [raw.warmup for raw in bench.pipeline.raws] == [False, True, True]
    assert bench.sampling.of("release") == [("release", 3, 8)] * 2


# Failures.


def test_a_failure_ends_the_recording_and_not_the_training() -> None:
    """Once, with a note; no step follows."""
    bench = Bench()
    bench.pipeline.error = ValueError("no room")
    assert bench.end() is Following.NOTHING
    assert bench.tracker.open is None
    assert bench.notes.all == ("recording is off after ValueError: no room",)
    assert bench.pipeline.calls == [("resume_gc",)]
    assert bench.sampling.of("switch")[-1] == ("switch", False)
    bench.pipeline.error = None
    assert bench.end() is Following.NOTHING
    assert bench.pipeline.raws == []


def test_the_failure_that_ends_the_recording_is_in_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    """With its traceback: the note has its text alone."""
    bench = Bench()
    error = bench.pipeline.error = ValueError("no room")
    with caplog.at_level("DEBUG", logger="autoprof"):
        bench.end()
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


def test_ctrl_c_in_the_end_of_a_step_goes_on_to_the_user() -> None:
    """The recording is off then."""
    bench = Bench()
    bench.pipeline.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.end()
    assert bench.end() is Following.NOTHING


# Pauses.


def test_a_pause_detaches_the_probes_and_is_marked() -> None:
    """One inside another is part of it; listeners hear of the outer one."""
    heard: list[bool] = []
    bench = Bench(pause_listeners=[heard.append])
    bench.sampling.calls.clear()
    for tracker in (bench.tracker,):
        assert not tracker.paused
        bench.host.advance(10)
        assert tracker.pause() == 1_010
        bench.host.advance(10)
        assert tracker.pause() == 1_020
        assert tracker.paused
        tracker.resume()
        assert tracker.paused
        bench.host.advance(10)
        assert tracker.resume() == 1_030
        assert not tracker.paused
    assert heard == [True, False]
    assert [call[0] for call in bench.sampling.calls] == ["switch", "exclude_pause", "switch"]
    assert bench.sampling.of("switch") == [("switch", False), ("switch", True)]
    bench.end()
    batch = bench.pipeline.raws[0].mark_batch
    assert (batch.codes, batch.readings) == ([PAUSE, UNPAUSE], [1_010, 1_030])


def test_a_pause_is_excluded_from_what_sampling_counts(time: SimpleNamespace) -> None:
    """From the detaching to the attaching of the probes, by the host's own time."""
    bench = Bench()
    bench.tracker.pause()
    time.ns += 700
    bench.tracker.resume()
    assert bench.sampling.of("exclude_pause") == [("exclude_pause", 701, 701)]
    bench.tracker.exclude_ns(44)
    assert bench.sampling.calls[-1] == ("exclude_pause", 44, 0)


def test_a_pause_in_a_gap_is_no_mark(time: SimpleNamespace) -> None:
    """Its time is excluded all the same; a step that begins in a pause has its probes when that is over."""
    bench = Bench(3)
    bench.end()
    bench.sampling.calls.clear()
    bench.tracker.pause()
    assert bench.sampling.of("switch") == []
    bench.sampling.gap_remaining = 0
    bench.end()
    assert bench.sampling.of("switch") == []
    bench.tracker.resume()
    assert bench.sampling.of("switch") == [("switch", True)]
    assert len(bench.sampling.of("exclude_pause")) == 1


def test_a_pause_since_an_earlier_reading_begins_there() -> None:
    """Its mark is in the buffer already, and the reading taken for nothing goes back to the clock."""
    device = FakeDevice(FakeClock(1_000))
    bench = Bench(device=device)
    pool = bench.clock._pools[0]
    earlier = bench.clock.read()
    bench.host.advance(50)
    left = len(pool)
    assert bench.tracker.pause(earlier) == 1_000
    assert len(pool) == left
    assert bench.tracker.pause_work_ns == 0
    bench.tracker.resume()
    bench.tracker.resume() if bench.tracker.paused else None
    assert len(pool) == left - 1  # the mark at the pause's end


def test_the_readings_of_a_pause_that_is_no_mark_go_back_to_the_clock() -> None:
    """In a gap it has none."""
    bench = Bench(3, device=FakeDevice(FakeClock(1_000)))
    bench.end()
    pool = bench.clock._pools[0]
    left = len(pool)
    assert bench.tracker.pause() == 1_100
    assert bench.tracker.resume() == 1_100
    assert len(pool) == left
    assert bench.recorder.failures == {}


def test_a_clock_that_fails_in_a_pause_is_counted_and_the_pause_goes_on() -> None:
    """Nothing is raised into the user's block, and the time of the failure is unknown."""
    bench = Bench()

    def fail() -> int:
        raise ValueError("no clock")

    read, bench.clock.read = bench.clock.read, fail
    assert bench.tracker.pause() == 0
    assert bench.tracker.paused
    assert bench.tracker.resume() == 0
    assert not bench.tracker.paused
    bench.clock.read = read
    assert bench.recorder.failures == {"pauses": 2}
    assert bench.end() is Following.RECORDED


# Moves to a device.


class Placement:
    """A model that moves once to another clock, or another device of the same one."""

    def __init__(self, move: Callable[[], str | None]) -> None:
        self.move = move
        self.due = False
        self.left = False

    def moved(self) -> bool:
        due, self.due = self.due, False
        return due

    def has_left(self) -> bool:
        return self.left

    def follow(self) -> str | None:
        return self.move()


def test_a_model_that_has_moved_to_a_device_is_timed_by_its_clock() -> None:
    """From the next step on, which begins with a reading of that clock; a note says so."""
    placement = Placement(lambda: None)
    bench = Bench(placement=placement)
    device_clock = FakeDevice(bench.host).device_clock()

    def move() -> str:
        bench.recorder.clock = device_clock
        return "moved to the device"

    placement.move, placement.due = move, True
    bench.end()
    bench.end()
    first, second = bench.pipeline.raws
    assert (first.clock, second.clock) == (bench.clock, device_clock)
    assert (second.begun_ns, second.ended_ns) == (1_100, 1_200)
    assert bench.pipeline.calls == [("release_end", first), ("use_clock", device_clock)]
    assert bench.notes.all == ("moved to the device",)


def test_a_model_that_has_moved_to_another_device_has_the_memory_of_that_one() -> None:
    """The clock is the same, and reads there."""
    device = FakeDevice(FakeClock(1_000))
    placement = Placement(lambda: None)
    bench = Bench(device=device, placement=placement)
    other = FakeAllocator(1 << 20, base_bytes=128)
    asked: list[int] = []
    bench.allocator.on = lambda device: asked.append(device) or other  # type: ignore[func-returns-value,method-assign]
    placement.move, placement.due = lambda: bench.clock.use_device(1), True
    bench.end()
    bench.end()
    assert [raw.memory["allocated_bytes"] for raw in bench.pipeline.raws] == [64, 128]
    assert asked == [1]
    assert bench.pipeline.calls == [("release_end", bench.pipeline.raws[0])]
    assert bench.pipeline.raws[1].start.place[0] == 1


def test_a_model_that_moves_in_a_gap_is_timed_by_its_clock_once_the_probes_are_attached() -> None:
    """The step after the gap begins there, as any step after a gap does."""
    placement = Placement(lambda: None)
    bench = Bench(7, device=FakeDevice(FakeClock(1_000)), placement=placement)
    placement.move = lambda: bench.clock.use_device(1)
    bench.allocator.on = lambda device: bench.allocator  # type: ignore[method-assign]
    bench.sampling.switch = lambda on: bench.host.advance(30)  # type: ignore[method-assign]
    bench.end()
    placement.due, bench.sampling.gap_remaining = True, 0
    assert bench.end() is Following.RECORDED
    opened = bench.tracker.open
    assert opened is not None
    assert (bench.clock.host_ns(opened.start), opened.start.place[0]) == (1_230, 1)
    assert bench.notes.all == ()


def test_a_model_that_moves_before_the_first_step_leaves_no_reading_on_its_old_device() -> None:
    """The reading goes back to the clock, and the step begins with one of the new device."""
    placement = Placement(lambda: bench.clock.use_device(1))
    bench = Bench(device=FakeDevice(FakeClock(1_000)), placement=placement)
    bench.allocator.on = lambda device: bench.allocator  # type: ignore[method-assign]
    released: list[Any] = []
    bench.clock.release, placement.due = released.extend, True
    bench.tracker.start()
    opened = bench.tracker.open
    assert opened is not None
    assert opened.start.place[0] == 1
    assert [reading.place[0] for reading in released] == [0]


def test_the_step_in_which_a_model_leaves_its_device_has_host_times_alone() -> None:
    """A note says so; what is a value in its marks stays one."""
    placement = Placement(lambda: None)
    bench = Bench(device=FakeDevice(FakeClock(1_000)), placement=placement)
    bench.recorder.append(ENTER, bench.clock.read(), get_ident())
    bench.recorder.append(LOGGED, 2.5, get_ident())
    placement.due = placement.left = True
    bench.end()
    batch = bench.pipeline.raws[0].mark_batch
    reading, value = batch.readings
    assert batch.codes == [ENTER, LOGGED]
    assert (bench.clock.host_ns(reading), reading.place) == (1_000, None)
    assert value == 2.5
    assert bench.notes.all == (step_tracker.MOVED,)


def test_a_move_that_changes_no_clock_changes_nothing() -> None:
    """The step begins where the last one ended."""
    placement = Placement(lambda: None)
    bench = Bench(placement=placement)
    placement.due = True
    bench.end()
    bench.end()
    assert bench.pipeline.calls == []
    assert bench.pipeline.raws[1].start is bench.pipeline.raws[0].end
    assert bench.notes.all == ()


# The end.


@pytest.mark.parametrize("whole", [True, False])
def test_the_open_step_is_closed_at_the_end_where_it_is_whole(whole: bool) -> None:
    """Else it is counted as unfinished, if a forward was recorded in it."""
    bench = Bench()
    layer = bench.recorder.label("layer", "layer", Phase.FORWARD)
    bench.recorder.append(layer | ENTER, 1_010, get_ident())
    bench.host.advance(90)
    bench.tracker.finish(whole=whole, patient=not whole)
    assert [raw.end for raw in bench.pipeline.raws] == [1_090] * whole
    assert bench.notes.skipped == ({} if whole else {"steps unfinished at the end": 1})
    assert bench.pipeline.calls == [("finish", not whole)]
    assert bench.end() is Following.NOTHING


def test_the_last_step_ends_with_the_mark_before_the_loops_end() -> None:
    """Marks from there on are dropped."""
    bench = Bench()
    for at in (1_010, 1_020, 1_030):
        bench.recorder.append(ENTER, at, get_ident())
    bench.tracker.finish(whole=True, patient=True, until=4)
    (raw,) = bench.pipeline.raws
    assert (raw.end, raw.mark_batch.readings) == (1_020, [1_010, 1_020])


def test_a_run_that_ends_in_a_gap_or_after_one_counts_its_steps() -> None:
    """Those of a step that is not closed are lost no more than it."""
    bench = Bench(7)
    bench.tracker.count_gap()
    assert bench.pipeline.open_gap == NO_GAP
    bench.end()
    bench.tracker.count_gap()
    gap = bench.pipeline.open_gap
    assert gap[:2] == (2, 2_000)
    assert gap.overhead_ns > 0
    bench.tracker.finish(whole=True, patient=True)
    assert bench.pipeline.calls[1:] == [("count_unsampled", gap), ("finish", True)]
    assert bench.pipeline.open_gap == NO_GAP
    assert bench.tracker.count == 3
    bench = Bench(7)
    bench.end()
    bench.sampling.gap_remaining = 0
    bench.end()
    bench.tracker.finish(whole=False, patient=True)
    assert bench.pipeline.calls[1:] == [("count_unsampled", OpenGap(5, 5_000)), ("finish", True)]
    assert bench.notes.skipped == {}


def test_detaching_stops_everything_whatever_fails() -> None:
    """No step follows."""
    bench = Bench()
    bench.tracker.detach()
    assert bench.sampling.of("detach_all") == [("detach_all",)]
    assert bench.tracker.open is None
    assert bench.end() is Following.NOTHING


# Scalars.


def test_a_scalar_is_a_number_or_a_tensor_of_one_element() -> None:
    """Anything else is an error of the caller's."""
    assert as_scalar(3) == 3.0
    assert as_scalar(torch.tensor([[2.5]], requires_grad=True)) == 2.5
    with pytest.raises(ValueError, match="it has 2 elements"):
        as_scalar(torch.ones(2))
    with pytest.raises(TypeError):
        as_scalar(None)


def test_the_units_of_work_of_a_gaps_steps_are_kept_for_the_step_after_it() -> None:
    """Numbers as their sum; nothing else of an unsampled step is kept."""
    bench = Bench(3)
    bench.end()
    for value in (2, 3.0, torch.tensor(4), 5, 6):
        bench.tracker.log("samples", value)
    bench.tracker.log("loss", 1.0)
    bench.sampling.gap_remaining = 0
    bench.end()
    bench.end()
    assert bench.pipeline.raws[0].gap_scalars == {}
    assert bench.pipeline.raws[1].gap_scalars == {"samples": [20.0]}
    bench.end()
    assert bench.pipeline.raws[2].gap_scalars == {}


def test_autoprofs_own_work_in_a_pause_is_that_at_both_its_ends() -> None:
    """Detaching the probes, and attaching them again; a pause inside another does neither."""
    bench = Bench()
    bench.sampling.switch = lambda on: bench.host.advance(3 if on else 4)  # type: ignore[method-assign]
    bench.tracker.pause()
    assert bench.tracker.pause_work_ns == 4
    bench.host.advance(50)
    bench.tracker.pause()
    bench.tracker.resume()
    assert bench.tracker.pause_work_ns == 4
    bench.tracker.resume()
    assert bench.tracker.pause_work_ns == 7
