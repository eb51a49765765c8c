"""What follows from the detector's decisions: steps, gaps, pauses, their accounts, and failures."""

from __future__ import annotations

from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest

from autoprof import Phase
from autoprof._capture.marks.codes import ENTER, LEAVE
from autoprof._capture.other_threads import NO_OTHER_MARKS, OtherMarks
from autoprof._capture.recorder import Recorder
from autoprof._notes import Notes
from autoprof._resolve import RawStep
from autoprof._session import training_steps
from autoprof._session.events import (
    BackwardBegins,
    Decision,
    EndStep,
    Event,
    ForwardBegins,
    ModeChanged,
    RenameMarks,
    StepCalled,
    UpdateEnds,
)
from autoprof._session.host_times import HostTimes
from autoprof._session.observers import ExcludedTime
from autoprof._session.sampling import TargetSet
from autoprof._session.step_detector import StepDetector
from autoprof._session.step_recorder import StepRecorder
from autoprof._session.training_steps import TrainingSteps
from autoprof.frame import NO_GAP, Gap
from autoprof.probes import Prefetch
from autoprof.summary import VALIDATION
from autoprof.testing import FakeAllocator, FakeClock


@pytest.fixture(autouse=True)
def hooks_in() -> None:
    """Run each test once: no mark of a module is made here."""


class Sampling:
    """Sampling that records these steps, and notes what it is asked."""

    fqns = frozenset({"layer"})
    set = TargetSet(number=3)

    def __init__(self, recorded: Any) -> None:
        self.recorded = recorded
        self.calls: list[tuple[Any, ...]] = []
        self.note: str | None = None
        self.attached = False

    def next_recorded(self, step: int) -> int:
        return step if self.recorded is None else next((one for one in self.recorded if one >= step), 1_000)

    def switch(self, on: bool) -> None:
        if on is not self.attached:
            self.attached = on
            self.calls.append(("switch", on))

    def cost_of(self, other: OtherMarks) -> int:
        return other.ns

    def begin_step(self, step: int) -> str | None:
        self.calls.append(("begin_step", step))
        return self.note and f"{self.note} from {step}"

    def detach_all(self) -> None:
        self.calls.append(("detach_all",))
        raise ValueError("a probe")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *what: self.calls.append((name, *what))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the calls of these names."""
        return [call for call in self.calls if call[0] in names]


class Pipeline:
    """A pipeline that keeps the steps, and notes what it is told."""

    def __init__(self) -> None:
        self.raws: list[RawStep] = []
        self.calls: list[tuple[Any, ...]] = []
        self.long = self.is_due = False
        self.passes_ns = 0
        self.open_gap = NO_GAP
        self.error: BaseException | None = None

    def submit(self, raw: RawStep) -> None:
        if self.error is not None:
            raise self.error
        self.raws.append(raw)

    def took_long(self) -> bool:
        return self.long

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *what, **more: self.calls.append((name, *what, *more.values()))


class Now:
    """A clock of the host."""

    ns = 0

    def __call__(self) -> int:
        return self.ns


class Flight:
    """A flight recorder that notes what it is told, and asks for a capture after a step that ends at ``slow_ns``."""

    def __init__(self, slow_ns: int = -1) -> None:
        self.calls: list[tuple[str, int]] = []
        self.slow_ns = slow_ns
        self.error: Exception | None = None
        self.ring = SimpleNamespace(
            begin_recorded=lambda number: self.calls.append(("begin", number)),
            exclude=lambda ns: self.calls.append(("exclude", ns)),
        )

    def end_step(self, now_ns: int) -> bool:
        if self.error is not None:
            raise self.error
        self.calls.append(("end", now_ns))
        return now_ns == self.slow_ns


class Bench:
    """The steps of a session on a fake clock; recorded are all of them, or those of these numbers."""

    def __init__(self, recorded: Any = None, *, auto: bool = False, **more: Any) -> None:
        self.clock = FakeClock(1_000)
        self.recorder = Recorder(self.clock)
        self.sampling, self.pipeline, self.notes = Sampling(recorded), Pipeline(), Notes()
        self.excluded = ExcludedTime(Prefetch())
        self.detector = StepDetector(auto=auto, thread=get_ident())
        steps = StepRecorder(self.recorder, self.clock, FakeAllocator(1 << 20), self.notes)
        self.steps = TrainingSteps(
            self.detector,
            steps,
            self.sampling,  # type: ignore[arg-type]
            self.pipeline,  # type: ignore[arg-type]
            self.excluded,
            self.recorder,
            self.notes,
            **more,
        )
        self.steps.start()

    def report(self, event: Event) -> list[Decision]:
        return list(self.steps.report(event))

    def end(self, ns: int = 100) -> None:
        """Let time pass and end the step."""
        self.clock.advance(ns)
        self.report(StepCalled())

    def forward(self, *, training: bool = True, graded: bool = True) -> None:
        self.report(ForwardBegins(1, True, training, graded, get_ident()))

    def train(self) -> None:
        self.forward()
        self.report(BackwardBegins(get_ident()))
        self.report(UpdateEnds(1, get_ident(), position=self.steps.position))

    @property
    def spent(self) -> list[tuple[str, int, int]]:
        """The excluded time: name, times and nanoseconds."""
        return [(one.name, one.calls, one.total_ns) for one in self.excluded.all()]


# Steps.


def test_each_step_is_passed_on_and_the_next_one_begins_where_it_ended() -> None:
    """With the probes of the targets that are chosen."""
    bench = Bench()
    bench.end()
    bench.end()
    assert [(raw.step, raw.start, raw.end, raw.cut) for raw in bench.pipeline.raws] == [
        (1, 1_000, 1_100, 3),
        (2, 1_100, 1_200, 3),
    ]
    assert bench.sampling.of("switch", "begin_step") == [
        ("begin_step", 1),
        ("switch", True),
        ("begin_step", 2),
        ("begin_step", 3),
    ]


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


def test_the_step_after_long_work_is_a_warm_up_step() -> None:
    """The caches are cold."""
    bench = Bench()
    bench.pipeline.long = True
    bench.end()
    bench.pipeline.long = False
    bench.end()
    bench.end()
    assert [raw.warmup for raw in bench.pipeline.raws] == [False, True, False]


def test_a_step_that_showed_training_in_eval_mode_is_a_warm_up_step() -> None:
    """A part of it was excluded."""
    bench = Bench(auto=True)
    bench.train()
    bench.forward(training=False)
    assert bench.steps.is_excluded
    bench.report(BackwardBegins(get_ident()))
    assert not bench.steps.is_excluded
    bench.end()
    assert [raw.warmup for raw in bench.pipeline.raws] == [True]


def test_of_steps_apart_only_the_recorded_ones_are_passed_on() -> None:
    """The others are counted; meanwhile no probe is attached, and the units logged are kept."""
    bench = Bench([1, 4, 5])
    for number in range(1, 6):
        assert bench.sampling.attached is (number in (1, 4, 5))
        assert bench.steps.is_recording is (number in (1, 4, 5))
        bench.steps.steps.log("samples", 2)
        bench.end()
    assert [(raw.step, raw.gap_steps, raw.gap_ns) for raw in bench.pipeline.raws] == [(1, 0, 0), (4, 2, 200), (5, 0, 0)]
    assert bench.pipeline.raws[1].gap_scalars == {"samples": [4.0]}
    assert bench.pipeline.calls[0] == ("release_end", bench.pipeline.raws[0])


def test_a_summary_counts_the_unsampled_steps_so_far() -> None:
    """A recorded step has them from its begin on."""
    bench = Bench([1, 4])
    for _ in range(3):
        bench.end()
        bench.steps.count_gap()
        if bench.steps.is_recording:
            assert bench.pipeline.open_gap == NO_GAP
    bench = Bench([1])
    bench.end()
    bench.end(70)
    bench.steps.count_gap()
    assert bench.pipeline.open_gap[:2] == (1, 70)


def test_a_pass_that_is_due_is_made_in_unsampled_steps_too() -> None:
    """Recorded steps may be far apart."""
    bench = Bench([1])
    bench.end()
    assert bench.pipeline.calls[1:] == []
    bench.end()
    assert bench.pipeline.calls[1:] == []
    bench.pipeline.is_due = True
    bench.end()
    assert bench.pipeline.calls[1:] == [("make_due_pass",)]
    assert bench.pipeline.open_gap[:2] == (2, 200)


def test_the_note_of_a_change_of_what_is_recorded_has_the_step() -> None:
    """Once a step begins with it."""
    bench = Bench()
    bench.sampling.note = "some are recorded"
    bench.end()
    assert bench.notes.all == ("some are recorded from 2",)


def test_other_threads_are_noted_once_they_are_off_or_more_than_a_step_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Being off is the more important note; their cost is overhead of the step."""
    for on, exceeded, notes in ((True, False, ()), (True, True, "cut"), (False, True, "off")):
        bench = Bench()
        bench.recorder.others.recorded = on
        take = bench.recorder.take
        other = OtherMarks(marks=3, ns=30, exceeded=exceeded)
        monkeypatch.setattr(bench.recorder, "take", lambda take=take, other=other: take()._replace(other=other))
        bench.end()
        assert bench.pipeline.raws[0].overhead_ns == 30
        expected = {"cut": (training_steps.OTHER_THREADS_CUT,), "off": (training_steps.OTHER_THREADS_OFF,), (): ()}
        assert bench.notes.all == expected[notes]
    assert NO_OTHER_MARKS.ns == 0


def test_a_follower_hears_the_open_step_and_the_next_ones_which_are_reserved() -> None:
    """Undone, it hears no more."""
    bench = Bench()
    bench.end()
    heard: list[int] = []
    undo = bench.steps.follow(lambda step: heard.append(step) or True, 3)  # type: ignore[func-returns-value]
    assert bench.sampling.of("reserve") == [("reserve", 3, 4)]
    bench.end()
    undo()
    undo()
    bench.end()
    assert heard == [2, 3]
    assert [raw.warmup for raw in bench.pipeline.raws] == [False, True, True]
    assert bench.sampling.of("release") == [("release", 3, 4)] * 2
    bench = Bench([1])
    bench.end()
    bench.steps.follow(heard.append, 3)
    assert bench.sampling.of("reserve") == [("reserve", 3, 4)]


# Failures.


def test_a_failure_ends_the_recording_and_not_the_training(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with a note, and its traceback in the debug log; no step follows."""
    bench = Bench()
    error = bench.pipeline.error = ValueError("no room")
    with caplog.at_level("DEBUG", logger="autoprof"):
        bench.end()
    assert bench.steps.is_off
    assert not bench.steps.is_recording
    assert bench.notes.all == ("recording is off after ValueError: no room",)
    assert bench.pipeline.calls == [("resume_gc",)]
    assert bench.sampling.of("detach_all")
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]
    bench.pipeline.error = None
    bench.end()
    assert bench.pipeline.raws == []


def test_ctrl_c_in_the_end_of_a_step_goes_on_to_the_user() -> None:
    """The recording is off then."""
    bench = Bench()
    bench.pipeline.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.end()
    assert bench.steps.is_off


def test_a_failure_of_the_detector_is_counted_and_ends_nothing() -> None:
    """The event has no consequence."""
    bench = Bench()
    bench.report("no event")  # type: ignore[arg-type]
    assert bench.recorder.failures == {"events": 1}
    bench.end()
    assert len(bench.pipeline.raws) == 1


def test_calls_that_cannot_be_read_are_a_failure_of_ours_and_the_step_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay where they are."""
    bench = Bench(auto=True)
    bench.train()
    bench.recorder.mark(bench.recorder.user_code("a call"))
    monkeypatch.setattr(bench.steps.steps.marks, "calls_since", lambda _position: 1 / 0)
    bench.forward()
    assert bench.recorder.failures == {"forwards without gradients": 1}
    assert len(bench.pipeline.raws) == 1


# What belongs to no step.


def test_a_pause_detaches_the_probes_and_is_counted() -> None:
    """Listeners hear of the outer one."""
    heard: list[bool] = []
    bench = Bench(pause_listeners=[heard.append])
    with bench.steps.exclude("pause"):
        assert bench.steps.is_excluded
        assert not bench.sampling.attached
        bench.clock.advance(5)
        with bench.steps.exclude("torch.save"):
            bench.clock.advance(10)
    assert not bench.steps.is_excluded
    assert bench.sampling.attached
    assert heard == [True, False]
    assert bench.spent == [("pause", 1, 15)]
    assert len(bench.sampling.of("exclude_pause")) == 1


def test_a_step_that_begins_in_a_pause_has_its_probes_when_that_is_over() -> None:
    """A call of step inside."""
    bench = Bench()
    with bench.steps.exclude("pause"):
        bench.end()
        assert not bench.sampling.attached
    assert bench.sampling.attached


def test_a_pause_in_an_unsampled_step_attaches_nothing() -> None:
    """Its time is excluded all the same."""
    bench = Bench([1])
    bench.end()
    with bench.steps.exclude("pause"):
        bench.clock.advance(7)
    assert not bench.sampling.attached
    assert bench.spent == [("pause", 1, 7)]


def test_a_pause_inside_validation_is_no_part_of_it() -> None:
    """Each is counted under its name; validation that is named as well, once."""
    bench = Bench(auto=True)
    bench.train()
    bench.report(ModeChanged(False, get_ident()))
    bench.clock.advance(60)
    with bench.steps.exclude("torch.save"):
        bench.clock.advance(1_000)
    with bench.steps.exclude(VALIDATION):
        bench.clock.advance(40)
    bench.forward()
    assert bench.spent == [("torch.save", 1, 1_000), (VALIDATION, 1, 100)]


def test_autoprofs_own_work_at_both_ends_is_no_part_of_validation() -> None:
    """Detaching the probes, and attaching them again: in a pause they are, by the program's own clock."""
    bench = Bench(auto=True)
    bench.train()
    bench.sampling.switch = lambda on: bench.clock.advance(3 if on else 5)  # type: ignore[method-assign]
    bench.report(ModeChanged(False, get_ident()))
    bench.clock.advance(50)
    bench.train()
    with bench.steps.exclude("pause"):
        bench.clock.advance(50)
    assert bench.spent == [(VALIDATION, 1, 50), ("pause", 1, 58)]


def test_a_clock_that_fails_in_a_pause_is_counted_and_the_pause_goes_on() -> None:
    """Nothing is raised into the user's block."""
    bench = Bench()

    def fail() -> int:
        raise ValueError("no clock")

    read, bench.clock.read = bench.clock.read, fail  # type: ignore[method-assign]
    with bench.steps.exclude("pause"):
        assert bench.steps.is_excluded
    bench.clock.read = read  # type: ignore[method-assign]
    assert bench.recorder.failures == {"events": 2}
    bench.end()
    assert len(bench.pipeline.raws) == 1


@pytest.mark.parametrize("recorded", [None, [1]])
def test_a_block_that_steps_have_not_is_excluded(recorded: Any) -> None:
    """Of two more than each step has, the longer one is known afterwards; in unsampled steps too."""
    bench = Bench(recorded, auto=True)

    def block(ns: int) -> None:
        bench.steps.block_begins()
        bench.clock.advance(ns)
        bench.steps.block_ends()

    for _ in range(5):
        block(7)
        bench.train()
    block(7)
    block(300)
    bench.forward()
    assert bench.spent == [("forward without gradients", 1, 300)]
    assert bench.sampling.of("exclude_pause")[-1][1] == 300


def test_autoprofs_own_work_without_gradients_is_no_block_of_the_program() -> None:
    """A count of FLOPs runs a copy of the model."""
    bench = Bench(auto=True)
    for _ in range(5):
        bench.train()
    with bench.steps.work:
        bench.steps.block_begins()
        bench.steps.block_ends()
    assert bench.spent == []


def test_a_row_of_no_module_is_noted() -> None:
    """With what to do."""
    bench = Bench()
    label = bench.recorder.label("teacher", "teacher", Phase.FORWARD)
    for kind in (ENTER, LEAVE):
        bench.recorder.append(label | kind, 1_000, get_ident())
    bench.steps._rename_marks(RenameMarks(0, 2, "teacher"))
    assert bench.notes.all == (
        "teacher was called between an update and the next training forward in some steps and not in others: "
        "validation, or part of training? Its time is in the row 'forward without gradients', in no forward; call "
        "model.eval() before validation, or put session.pause() around it",
    )


# The end.


def test_the_last_step_is_passed_on_and_the_device_waited_for() -> None:
    """Nothing follows."""
    bench = Bench(auto=True)
    bench.train()
    bench.clock.advance(50)
    bench.steps.finish(updated=False, patient=True)
    assert [raw.step for raw in bench.pipeline.raws] == [1]
    assert bench.pipeline.calls == [("finish", True)]
    bench.end()
    assert len(bench.pipeline.raws) == 1


def test_unsampled_steps_at_the_end_are_counted() -> None:
    """No recorded one follows them."""
    bench = Bench([1])
    bench.end()
    bench.end()
    bench.steps.finish(updated=False, patient=False)
    assert bench.pipeline.open_gap[:2] == Gap(1, 100)[:2]


@pytest.mark.parametrize(("after_ns", "counted_ns"), [(51, 50), (50, 100)])
def test_the_time_after_the_last_block_of_the_last_validation_may_be_no_part_of_it(
    after_ns: int, counted_ns: int
) -> None:
    """No event ends it: where more time follows than it took, it is another work's."""
    bench = Bench(auto=True)
    bench.train()
    bench.report(ModeChanged(False, get_ident()))
    bench.steps.block_begins()
    bench.clock.advance(50)
    bench.steps.block_ends()
    bench.clock.advance(after_ns)
    bench.steps.finish(updated=False, patient=True)
    assert bench.spent == [(VALIDATION, 1, counted_ns)]


def test_steps_that_an_optimizer_made_are_compared_with_those_found() -> None:
    """The note has both numbers, and says what to do."""
    bench = Bench(auto=True)
    bench.train()
    for _ in range(3):
        bench.report(UpdateEnds(1, get_ident(), position=0))
    bench.forward()
    bench.steps.finish(updated=False, patient=True)
    assert bench.notes.all == (
        "1 step was found, but one optimizer made 4 steps; to say where a step ends, open the session in the program "
        "(autoprof.instrument) and call session.step() at the end of each iteration",
    )


def test_detaching_stops_everything_whatever_fails() -> None:
    """No step follows."""
    bench = Bench()
    bench.steps.detach()
    assert bench.sampling.of("detach_all") == [("detach_all",)]
    assert not bench.steps.is_recording
    bench.end()
    assert bench.pipeline.raws == []


def test_a_step_that_held_several_ends_once() -> None:
    """Its number is that of the last of them."""
    bench = Bench()
    bench.steps._end_step(EndStep(3))
    assert bench.pipeline.raws[0].step == 3
    assert bench.steps.steps.number == 4


def test_a_flight_recorder_follows_each_step_and_what_is_no_part_of_it() -> None:
    """Recorded or not; autoprof's own work between two steps is excluded, and so are pauses."""
    flight, now = Flight(), Now()
    bench = Bench([1, 3], flight=flight, times=HostTimes(now, now))
    for _ in range(3):
        bench.end()
        now.ns += 50
    with bench.steps.exclude("saving"):
        now.ns += 30
    names = [name for name, _ in flight.calls]
    assert names == ["begin", "end", "exclude", "end", "begin", "exclude", "end", "exclude", "exclude"]
    assert flight.calls[-1] == ("exclude", 30)
    assert [number for name, number in flight.calls if name == "begin"] == [1, 3]


def test_the_step_after_one_that_asks_for_a_capture_is_recorded() -> None:
    """Also where the sampling would not record it."""
    flight, now = Flight(slow_ns=2), Now()
    bench = Bench([1], flight=flight, times=HostTimes(now, now))
    for step in range(1, 5):
        now.ns = step
        bench.end()
    assert [raw.step for raw in bench.pipeline.raws] == [1, 3]


@pytest.mark.parametrize("recorded", [None, [1]])
def test_a_failure_of_the_flight_recorder_ends_the_recording(recorded: Any) -> None:
    """Where a recorded step ends, and where an unsampled one does."""
    flight = Flight()
    bench = Bench(recorded, flight=flight)
    bench.end()
    flight.error = ValueError("a closed file")
    bench.end()
    assert bench.steps.is_off
    assert bench.notes.all == ("recording is off after ValueError: a closed file",)
