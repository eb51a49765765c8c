"""The pipeline by itself: closed steps become frames in passes; at the end no part fails for all."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from autoprof import Phase
from autoprof.base.frame import FrameRun, StepFrame
from autoprof.base.notes import Notes
from autoprof.capture.marks import codes as marks
from autoprof.capture.marks.mark_batch import MarkBatch
from autoprof.capture.recorder import Recorder
from autoprof.devices import Clock
from autoprof.resolve import RawStep
from autoprof.resolve.observer import Observer
from autoprof.session import pipeline
from autoprof.session.pipeline import (
    FIRST_PASS_NS,
    LONG_PASS_NS,
    MAX_WAITING_VALUES,
    PASS_EVERY_NS,
    PASS_NS,
    PATIENCE_NS,
    Pipeline,
)
from autoprof.testing import FakeClock, FakeDevice, ListSink
from tests.accounts import FakeRun

MS = 1_000_000


class Bench:
    """A pipeline with a clock, and steps that each begin where the last one ended."""

    def __init__(self, *observers: Observer, device: FakeDevice | None = None, sinks: Any = None) -> None:
        self.run = FakeRun(0.05)
        """The account of the run and its clocks: a fifth of 5 % is for passes."""
        self.run.now_ns = 10**12
        self.run.account.open(0.05, lambda: self.run.now_ns)
        self.excesses: list[int] = []
        self.host = FakeClock() if device is None else device.clock
        self.clock: Clock = self.host if device is None else device.device_clock()
        self.recorder = Recorder(self.host)
        self.layer = self.recorder.label("layer", "layer", Phase.FORWARD)
        self.notes, self.sink = Notes(), ListSink()
        self.pipeline = Pipeline(
            self.recorder,
            self.clock,
            3.0,
            observers=observers,
            sinks=[self.sink] if sinks is None else sinks,
            folder=None,
            notes=self.notes,
            account=self.run.account,
            now_ns=lambda: self.run.now_ns,
            spend=self.excesses.append,
        )
        self.steps = 0
        self._start = self.clock.read()

    def raw(self, calls: int = 1, ns: int = MS, **fields: Any) -> RawStep:
        """Return a step of so many calls, in which ``ns`` pass."""
        self.steps += 1
        codes = np.array([self.layer | marks.ENTER, self.layer | marks.LEAVE] * calls, np.int64).tobytes()
        readings = [self.clock.read() for _ in range(2 * calls)]
        self.host.advance(ns)
        start, end = self._start, self.clock.read()
        self._start = end
        batch = MarkBatch(codes, readings, 0, False, 0)
        return RawStep(self.steps, 0, self.steps, self.clock, start, end, batch, **fields)

    def step(self, calls: int = 1, ns: int = MS, **fields: Any) -> RawStep:
        """Submit such a step, in which as much time passes on the pipeline's clock."""
        raw = self.raw(calls, ns, **fields)
        self.run.now_ns += ns
        self.pipeline.submit(raw)
        return raw

    def work(self, ns: int) -> None:
        """Have a part of a pass take so long."""
        self.run.now_ns += ns
        self.run.processor_ns += ns

    def due(self) -> None:
        """Let so much time pass that a pass is due."""
        self.run.now_ns += PASS_EVERY_NS

    @property
    def passed(self) -> list[int]:
        """The steps whose frames reached the sink."""
        return [frame.step for frame in self.sink.frames]


class Busy(Observer):
    """Take time for the frames of each run."""

    provides = "busy part"

    def __init__(self, ns: int = 0) -> None:
        self.ns = ns
        self.bench: Bench
        self.runs: list[list[int]] = []

    def frames(self, run: FrameRun) -> None:
        self.bench.work(self.ns)
        self.runs.append(list(run.steps))


def busy(ns: int = 0, **more: Any) -> tuple[Bench, Busy]:
    """Return a pipeline with an observer that takes this time for each run of frames."""
    observer = Busy(ns)
    observer.bench = bench = Bench(observer, **more)
    return bench, observer


class Slow(ListSink):
    """A sink that takes time for each frame."""

    def __init__(self, ns: int) -> None:
        super().__init__()
        self.ns = ns
        self.other_ns = 0
        """The time of other programs for each frame."""
        self.bench: Bench

    def write(self, frame: StepFrame) -> None:
        self.bench.work(self.ns)
        self.bench.run.now_ns += self.other_ns
        super().write(frame)


def slow(ns: int, **more: Any) -> tuple[Bench, Slow]:
    """Return a pipeline whose sink takes this time for each frame."""
    sink = Slow(ns)
    sink.bench = bench = Bench(sinks=[sink], **more)
    return bench, sink


# When a pass is due.


@pytest.mark.long_passes
@pytest.mark.parametrize(("ns", "is_long"), [(LONG_PASS_NS - MS, False), (LONG_PASS_NS, True)])
def test_a_pass_that_takes_long_says_so_for_the_step_that_it_lengthens(ns: int, is_long: bool) -> None:
    bench, _ = busy(ns)
    bench.step()
    bench.due()
    bench.step()
    assert bench.pipeline.took_long is is_long


def test_a_pass_is_due_half_a_second_after_the_one_before() -> None:
    """Short steps wait until then, and come together; nothing but the injected clock decides."""
    bench, observer = busy()
    for _ in range(1_400):
        bench.step(ns=MS)
    begins = [1, 102, 202, 402, 658, 802, 1_058, 1_302]
    assert observer.runs == [list(range(*run)) for run in pairwise(begins)]
    assert bench.passed == list(range(1, 1_302))
    assert PASS_EVERY_NS == 500 * MS


def test_the_first_pass_is_due_a_tenth_of_a_second_after_the_first_step() -> None:
    """The first passes decide which lines are sampled; a run of half a second has some as well."""
    bench, _ = busy()
    bench.step(ns=2_000 * MS)
    bench.step(ns=FIRST_PASS_NS - 1)
    assert bench.passed == []
    bench.step(ns=1)
    assert bench.passed == [1, 2, 3]


def test_a_long_first_pass_does_not_put_off_the_second() -> None:
    """It imports and makes things that the others only use: the first milliseconds are free."""
    bench, sink = slow(4 * MS)
    for ns in (1, FIRST_PASS_NS, FIRST_PASS_NS):
        bench.step(ns=ns)
    assert [frame.step for frame in sink.frames] == [1, 2, 3]


def test_no_more_steps_wait_than_take_four_megabytes() -> None:
    """A pass is due then: the sinks, or the program without a budget, are faster than half a second allows."""
    bench, observer = busy()
    most = MAX_WAITING_VALUES // (2 * 1_000 + 32)
    for _ in range(most):
        bench.step(1_000, ns=1)
    assert observer.runs == []
    bench.step(1_000, ns=1)
    assert sum(map(len, observer.runs)) == most + 1


# How long a pass takes.


def test_a_pass_ends_after_five_milliseconds_between_two_frames() -> None:
    """The next one goes on, in order; nothing is lost or written twice."""
    bench, sink = slow(3 * MS)
    for _ in range(6):
        bench.step(ns=1)
    seen = []
    for _ in range(4):
        bench.due()
        bench.pipeline.make_due_pass()
        seen.append(len(sink.frames))
    assert seen == [2, 4, 6, 6]
    assert PASS_NS == 5 * MS
    assert [frame.step for frame in sink.frames] == [1, 2, 3, 4, 5, 6]


def test_what_passes_take_beyond_their_part_is_charged_where_they_cannot_come_less_often() -> None:
    """At the longest pause of two seconds only fewer steps make them shorter. They begin 2.05 and 3.05 s apart."""
    bench, sink = slow(50 * MS)
    bench.step()
    bench.pipeline.flush()
    for passed_s in (1, 2, 3):
        bench.step(ns=passed_s * 1_000 * MS)
        assert len(sink.frames) == 1 + passed_s
    assert bench.excesses == [29_500_000, 19_500_000]


def test_other_programs_make_no_pass_end_earlier() -> None:
    """They take the wall clock's time, not the processor's: what is left for the next pass would look like cost."""
    bench, sink = slow(0)
    sink.other_ns = 3 * MS
    for _ in range(6):
        bench.step(ns=1)
    bench.due()
    bench.pipeline.make_due_pass()
    assert len(sink.frames) == 6
    assert bench.excesses == []


# The way of one step.


class Chain(Observer):
    """Add a letter to the step's scalars at each station."""

    def __init__(self, letter: str, seen: list[str]) -> None:
        self.letter, self.seen = letter, seen

    def step(self, raw: RawStep) -> RawStep:
        self.seen.append(f"{self.letter} step {raw.step}")
        return raw._replace(scalars={**raw.scalars, f"step_{self.letter}": float(len(raw.scalars))})

    def frames(self, run: FrameRun) -> None:
        self.seen.append(f"{self.letter} frames {[*run.steps]}")
        run.scalars[:] = [{**one, f"frames_{self.letter}": float(len(one))} for one in run.scalars]


@pytest.mark.parametrize("fails", ["step", "frames"])
def test_an_observer_that_fails_with_a_step_is_called_no_more(fails: str) -> None:
    """A note says what is missing and why; the others, the statistics and the sinks go on."""

    class Broken(Observer):
        provides = "throughput"

        def step(self, raw: RawStep) -> RawStep:
            return self._call("step") or raw

        def frames(self, run: FrameRun) -> None:
            self._call("frames")

        def _call(self, name: str) -> Any:
            calls.append(name)
            if name == fails:
                raise ValueError(name)

    calls: list[str] = []
    seen: list[str] = []
    bench = Bench(Broken(), Chain("b", seen))
    for _ in range(2):
        bench.step()
        bench.pipeline.flush()
    assert calls.count(fails) == 1
    assert calls[-1] == fails
    assert seen == ["b step 1", "b frames [1]", "b step 2", "b frames [2]"]
    assert bench.passed == [1, 2]
    assert bench.pipeline.summarizer.summary().steps == 2
    assert bench.notes.all == (f"no throughput after ValueError: {fails}",)


# The end.


def hung(monkeypatch: pytest.MonkeyPatch, lag_ns: int) -> tuple[Bench, FakeDevice, list[float]]:
    """Return a pipeline with two steps that wait for a device this late, and the seconds that its end sleeps."""
    device, slept = FakeDevice(FakeClock(), lag_ns=lag_ns), list[float]()
    bench = Bench(device=device)
    for _ in range(2):
        bench.step()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        assert sum(slept) < 10, "the end waits for ever"
        bench.run.now_ns += round(seconds * 1e9)
        device.clock.advance(round(seconds * 1e9))

    monkeypatch.setattr(pipeline, "sleep", sleep)
    return bench, device, slept


def test_an_end_without_patience_gives_a_device_that_hangs_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends SIGTERM sends SIGKILL next; the steps that wait are counted."""
    bench, device, slept = hung(monkeypatch, 10**15)
    bench.pipeline.finish(patient=False)
    assert sum(slept) == pytest.approx(PATIENCE_NS / 1e9, abs=0.01)
    assert device.waits == 0
    bench.pipeline.close("SIGTERM")
    assert bench.passed == []
    assert bench.sink.summary is not None
    assert bench.sink.summary.skipped == {"steps that the device had not passed": 2}
