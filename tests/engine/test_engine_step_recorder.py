"""The step recorder by itself: what a step is made of, unsampled steps, pauses, and moves to a device."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autoprof import Phase
from autoprof._capture.marks.codes import ENTER, KIND_MASK, LEAVE, LOGGED, PAUSE, UNPAUSE
from autoprof._capture.recorder import Recorder
from autoprof._notes import Notes
from autoprof._resolve import RawStep
from autoprof._session.events import ExcludeMarks, Moment
from autoprof._session.host_times import HostTimes
from autoprof._session.step_recorder import MOVED, StepRecorder, as_scalar
from autoprof.frame import NO_GAP, Gap
from autoprof.testing import FakeAllocator, FakeClock, FakeDevice


@pytest.fixture(autouse=True)
def hooks_in() -> None:
    """Run each test once: no mark of a module is made here."""


class Bench:
    """A step recorder on a fake clock, with its first step open."""

    def __init__(self, *, device: FakeDevice | None = None, **more: Any) -> None:
        self.host = FakeClock(1_000) if device is None else device.clock
        self.clock: Any = self.host if device is None else device.device_clock()
        self.recorder = Recorder(self.clock)
        self.notes = Notes()
        self.allocator = FakeAllocator(1 << 20, base_bytes=64)
        self.unix_ns = lambda: 77
        times = HostTimes(unix_ns=lambda: self.unix_ns())
        self.steps = StepRecorder(self.recorder, self.clock, self.allocator, self.notes, times=times, **more)
        self.raws: list[RawStep] = []
        self.begin(self.clock.read())

    def begin(self, start: Any = None, **more: Any) -> None:
        """Open the next step, recorded."""
        self.steps.number += 1
        self.steps.begin(start, frozenset({"layer"}), 3, **more)
        self.steps.started()

    def skip(self) -> None:
        """Open the next step, unsampled."""
        self.steps.number += 1
        self.steps.begin_unsampled()

    def close(self, ns: int = 100, **more: Any) -> RawStep | None:
        """Let time pass, and close the open step."""
        self.host.advance(ns)
        raw = self.steps.close(**more)
        if raw is not None:
            self.raws.append(raw)
        return raw

    def next(self, ns: int = 100, **more: Any) -> None:
        """Close the open recorded step, and open another one."""
        self.close(ns, **more)
        self.begin(self.steps.follow_device(self.raws[-1].end, is_end=True))

    def call(self, fqn: str, ns: int = 10, phase: Phase = Phase.FORWARD) -> int:
        """Mark a call; return its position."""
        label, at = self.recorder.label(fqn, fqn, phase), len(self.recorder.buffer)
        self.recorder.append(label | ENTER, self.clock.read(), get_ident())
        self.host.advance(ns)
        self.recorder.append(label | LEAVE, self.clock.read(), get_ident())
        return at

    def kinds(self) -> list[int]:
        """Return the kinds of the marks of the open step."""
        return [code & KIND_MASK for code in list(self.recorder.buffer)[::2]]


# Recorded steps.


def test_steps_join_without_a_gap_and_have_what_was_logged_in_them() -> None:
    """Each begins with the reading that ended the one before."""
    bench = Bench()
    bench.steps.log("loss", 2)
    bench.next(100)
    bench.steps.log("loss", torch.tensor(3.0))
    bench.next(200)
    first, second = bench.raws
    assert (first.step, first.start, first.end, first.scalars) == (1, 1_000, 1_100, {"loss": 2.0})
    assert (second.step, second.start, second.end, second.scalars) == (2, 1_100, 1_300, {"loss": 3.0})
    assert first.start_unix_ns == 77
    assert first.memory == {"allocated_bytes": 64, "reserved_bytes": 64, "peak_bytes": 64, "inactive_split_bytes": 0}
    assert (first.instrumented, first.cut) == (frozenset({"layer"}), 3)
    assert bench.steps.ended == 2


def test_a_step_begins_at_the_wall_clock_time_of_its_first_mark() -> None:
    """The work between the end of a step and the next one may take milliseconds, and is part of the next one."""
    bench = Bench()
    wall = iter(range(1_000, 10_000, 500))
    bench.unix_ns = wall.__next__
    bench.close()
    next(wall)
    bench.begin(bench.raws[-1].end)
    bench.close()
    assert bench.raws[1].start_unix_ns == 1_000


def test_the_marks_of_a_step_are_taken_with_it() -> None:
    """The next one has its own."""
    bench = Bench()
    bench.recorder.append(ENTER, 1_050, get_ident())
    bench.next()
    bench.next()
    first, second = bench.raws
    assert (first.mark_batch.codes, second.mark_batch.codes) == ([ENTER], [])
    assert second.serial > first.serial


def test_a_step_that_held_several_training_steps_counts_as_so_many() -> None:
    """All but the last are unsampled, and that one is a warm-up step."""
    bench = Bench()
    bench.next(100, held=1)
    bench.next(400, held=4)
    bench.next(100)
    assert [(raw.step, raw.warmup, raw.gap_steps, raw.gap_ns) for raw in bench.raws] == [
        (1, False, 0, 0),
        (5, True, 3, 300),
        (6, False, 0, 0),
    ]


def test_the_overhead_of_a_step_is_autoprofs_work_since_the_last_one() -> None:
    """That at the end of the step before it, and of the meters, which begin anew."""
    meter = SimpleNamespace(spent_ns=40)
    bench = Bench(cost_meters=[meter])
    bench.next()
    bench.steps.work_ns += 500
    bench.recorder.detail_ns = 9
    bench.next()
    bench.next()
    assert [raw.overhead_ns for raw in bench.raws] == [40, 500, 0]
    assert (meter.spent_ns, bench.steps.metered_ns) == (0, 49)


# Unsampled steps.


def test_unsampled_steps_are_counted_and_timed_without_marks() -> None:
    """The recorded step after them has their number, their time, their units and autoprof's work between them."""
    bench = Bench()
    bench.close(100)
    bench.host.advance(7)
    bench.skip()
    for value in (2, 3.5):
        bench.steps.log("samples", value)
        bench.steps.log("loss", value)
    bench.steps.log("samples", torch.tensor([4.0]))
    bench.call("layer", 0)
    assert bench.close(200) is None
    bench.host.advance(20)
    bench.skip()
    bench.close(300)
    assert bench.steps.open_gap()[:2] == (2, 500)
    bench.host.advance(30)
    bench.begin()
    bench.close(50)
    bench.begin(bench.raws[-1].end)
    bench.close(50)
    _, after, later = bench.raws
    assert (after.step, after.start, after.end, after.gap_steps, after.gap_ns) == (4, 1_657, 1_707, 2, 500)
    assert (after.gap_scalars, after.gap_overhead_ns, after.mark_batch.codes) == ({"samples": [9.5]}, 57, [])
    assert (later.step, later.gap_steps, later.gap_scalars, later.gap_overhead_ns) == (5, 0, {}, 0)


def test_the_overhead_of_unsampled_steps_is_the_work_since_the_last_recorded_one() -> None:
    """That of earlier steps is in the steps."""
    bench = Bench()
    assert bench.steps.open_gap() == NO_GAP
    bench.steps.work_ns += 500
    bench.close()
    bench.skip()
    bench.close()
    bench.steps.work_ns += 20
    assert bench.steps.open_gap() == Gap(1, 100, 20)


def test_a_pause_is_no_part_of_an_unsampled_step() -> None:
    """Neither where the step ends inside it."""
    bench = Bench()
    bench.close()
    bench.skip()
    bench.host.advance(10)
    assert bench.steps.pause() == 1_110
    bench.host.advance(1_000)
    bench.steps.resume()
    bench.close(5)
    bench.skip()
    bench.host.advance(10)
    bench.steps.pause()
    bench.close(1_000)
    bench.skip()
    bench.host.advance(1_000)
    bench.steps.resume()
    bench.close(1)
    assert bench.steps.open_gap()[:2] == (3, 15 + 10 + 1)


# What belongs to no step.


def test_a_pause_is_marked_once() -> None:
    """One inside another is part of it."""
    bench = Bench()
    bench.host.advance(10)
    assert bench.steps.pause() == 1_010
    bench.host.advance(10)
    assert bench.steps.pause() == 1_020
    assert bench.steps.pauses == 2
    bench.steps.resume()
    bench.host.advance(10)
    assert bench.steps.resume() == 1_030
    bench.close()
    batch = bench.raws[0].mark_batch
    assert (batch.codes, batch.readings) == ([PAUSE, UNPAUSE], [1_010, 1_030])


def test_a_pause_may_begin_with_the_fetches_right_before_it() -> None:
    """Their marks become those of the pause."""
    bench = Bench()
    bench.call("layer")
    bench.call("Data", phase=Phase.DATA)
    assert bench.steps.pause(fetches=True) == 1_010
    bench.steps.resume()
    assert bench.kinds() == [ENTER, LEAVE, PAUSE, PAUSE, UNPAUSE]
    assert bench.steps.pause(fetches=True) == 1_020


def test_the_readings_of_a_pause_that_is_no_mark_go_back_to_the_clock() -> None:
    """In an unsampled step it has none, and one since an earlier reading needs no other."""
    bench = Bench(device=FakeDevice(FakeClock(1_000)))
    pool = bench.clock._pools[0]
    bench.call("Data", phase=Phase.DATA)
    left = len(pool)
    bench.steps.pause(fetches=True)
    assert len(pool) == left
    bench.steps.resume()
    bench.close()
    bench.skip()
    left = len(pool)
    assert bench.steps.pause() == bench.steps.resume() == 1_110
    assert len(pool) == left
    assert bench.recorder.failures == {}


def test_calls_are_excluded_afterwards_with_the_fetches_before_them() -> None:
    """Their marks become a pause; the calls that the step keeps stay."""
    bench = Bench()
    bench.call("kept")
    bench.call("Data", 3, Phase.DATA)
    at = bench.call("teacher", 20)
    bench.call("kept")
    marks = ExcludeMarks(Moment(at, 0), Moment(at + 2, 0), fetches=True)
    assert bench.steps.exclude(marks) == 23
    assert bench.kinds() == [ENTER, LEAVE, PAUSE, PAUSE, PAUSE, UNPAUSE, ENTER, LEAVE]


def test_a_block_is_excluded_afterwards_in_unsampled_steps_too() -> None:
    """By its moments, without the pause inside it."""
    lengths = []
    for recorded in (True, False):
        bench = Bench()
        if not recorded:
            bench.close()
            bench.skip()
        began = bench.steps.moment()
        bench.host.advance(30)
        bench.steps.pause()
        bench.host.advance(500)
        bench.steps.resume()
        bench.host.advance(4)
        ended = bench.steps.moment()
        assert began is not None
        assert ended is not None
        lengths.append((ended.ns - began.ns, bench.steps.exclude(ExcludeMarks(began, ended))))
        bench.close(50)
        assert bench.steps.open_gap().ns == (0 if recorded else 50)
    assert lengths == [(34, 34)] * 2


def test_the_outermost_calls_of_a_step_are_those_that_its_marks_show() -> None:
    """Since a position."""
    bench = Bench()
    at = bench.call("layer")
    assert bench.steps.marks.calls_since(0) == ((at, at + 2, "layer"),)
    assert bench.steps.marks.calls_since(at + 4) == ()


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
    bench.next()
    bench.close()
    first, second = bench.raws
    assert (first.clock, second.clock) == (bench.clock, device_clock)
    assert (second.begun_ns, second.ended_ns) == (1_100, 1_200)
    assert bench.notes.all == ("moved to the device",)


def test_a_model_that_has_moved_to_another_device_has_the_memory_of_that_one() -> None:
    """The clock is the same, and reads there."""
    placement = Placement(lambda: None)
    bench = Bench(device=FakeDevice(FakeClock(1_000)), placement=placement)
    other = FakeAllocator(1 << 20, base_bytes=128)
    asked: list[int] = []
    bench.allocator.on = lambda device: asked.append(device) or other  # type: ignore[func-returns-value,method-assign]
    placement.move, placement.due = lambda: bench.clock.use_device(1), True
    bench.next()
    bench.close()
    assert [raw.memory["allocated_bytes"] for raw in bench.raws] == [64, 128]
    assert asked == [1]
    assert bench.raws[1].start.place[0] == 1


def test_a_reading_of_the_device_that_the_model_has_left_goes_back_to_the_clock() -> None:
    """The end of a step is kept by the step."""
    placement = Placement(lambda: bench.clock.use_device(1))
    bench = Bench(device=FakeDevice(FakeClock(1_000)), placement=placement)
    bench.allocator.on = lambda device: bench.allocator  # type: ignore[method-assign]
    released: list[Any] = []
    bench.clock.release, placement.due = released.extend, True
    start = bench.steps.follow_device(bench.clock.read())
    assert start.place[0] == 1
    assert [reading.place[0] for reading in released] == [0]


def test_the_step_in_which_a_model_leaves_its_device_has_host_times_alone() -> None:
    """A note says so; what is a value in its marks stays one."""
    placement = Placement(lambda: None)
    bench = Bench(device=FakeDevice(FakeClock(1_000)), placement=placement)
    bench.recorder.append(ENTER, bench.clock.read(), get_ident())
    bench.recorder.append(LOGGED, 2.5, get_ident())
    placement.due = placement.left = True
    bench.close()
    batch = bench.raws[0].mark_batch
    reading, value = batch.readings
    assert batch.codes == [ENTER, LOGGED]
    assert (bench.clock.host_ns(reading), reading.place) == (1_000, None)
    assert value == 2.5
    assert bench.notes.all == (MOVED,)


def test_a_move_that_changes_no_clock_changes_nothing() -> None:
    """The step begins where the last one ended."""
    placement = Placement(lambda: None)
    bench = Bench(placement=placement)
    placement.due = True
    bench.next()
    bench.close()
    assert bench.raws[1].start is bench.raws[0].end
    assert bench.notes.all == ()


# The end.


@pytest.mark.parametrize("whole", [True, False])
def test_the_open_step_is_closed_at_the_end_where_it_is_whole(whole: bool) -> None:
    """Else it is counted as unfinished, if a forward was recorded in it."""
    bench = Bench()
    bench.call("layer", 90)
    raw, gap = bench.steps.close_last(whole=whole, updated_at=4)
    assert (raw is not None, gap, bench.steps.ended) == (whole, NO_GAP, int(whole))
    assert bench.notes.skipped == ({} if whole else {"steps unfinished at the end": 1})


def test_the_last_step_ends_with_the_mark_before_the_loops_end() -> None:
    """Marks from there on are dropped: more time follows the update than came before it."""
    bench = Bench()
    bench.call("layer", 20)
    bench.host.advance(1_000)
    bench.call("drawing", 20)
    raw, _ = bench.steps.close_last(whole=True, updated_at=4)
    assert raw is not None
    assert (raw.end, raw.mark_batch.readings) == (1_020, [1_000, 1_020])


def test_a_run_that_ends_with_unsampled_steps_counts_them() -> None:
    """The last one is no longer than the one before it: the loop may have ended long ago."""
    bench = Bench()
    bench.close(100)
    bench.skip()
    bench.close(90)
    bench.skip()
    bench.host.advance(10_000)
    raw, gap = bench.steps.close_last(whole=True, updated_at=0)
    assert (raw, gap[:2], bench.steps.ended) == (None, (2, 180), 3)
    bench = Bench()
    bench.close(100)
    bench.skip()
    bench.close(90)
    bench.begin()
    raw, gap = bench.steps.close_last(whole=False, updated_at=None)
    assert (raw, gap[:2], bench.steps.ended) == (None, (1, 90), 2)
    assert bench.notes.skipped == {}


# Scalars.


def test_a_scalar_is_a_number_or_a_tensor_of_one_element() -> None:
    """Anything else is an error of the caller's."""
    assert as_scalar(3) == 3.0
    assert as_scalar(torch.tensor([[2.5]], requires_grad=True)) == 2.5
    with pytest.raises(ValueError, match="it has 2 elements"):
        as_scalar(torch.ones(2))
    with pytest.raises(TypeError):
        as_scalar(None)
