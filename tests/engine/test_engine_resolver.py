"""The resolver by itself: closed steps go in, frames come out in order, and each reading goes back to its clock."""

from typing import Any

import numpy as np
import pytest

from autoprof import Phase, StepFrame
from autoprof.base.frame import TRAINING_LANE
from autoprof.base.stats import Aggregate
from autoprof.capture.marks import codes as marks
from autoprof.capture.marks.mark_batch import MarkBatch
from autoprof.capture.recorder import Recorder
from autoprof.devices import Clock
from autoprof.resolve import RawStep, Resolver
from autoprof.resolve.resolver import PENDING
from autoprof.testing import FakeClock, FakeDevice

BOTH = frozenset((Phase.FORWARD, Phase.BACKWARD))
THREAD = 1
"""The training thread's identifier."""


class Bench:
    """Make closed steps of given marks on a clock, each from the end of the one before, for one resolver."""

    def __init__(self, device: FakeDevice | None = None, *, start_ns: int = 0) -> None:
        self.host = FakeClock(start_ns) if device is None else device.clock
        self.device = device
        self.clock: Clock = self.host if device is None else device.device_clock()
        self.recorder = Recorder(self.host)
        self.resolver = Resolver(self.recorder.labels, 0.0)
        self.steps = 0
        self._start: Any = None

    def label(self, name: str, phase: Phase = Phase.FORWARD, phases: frozenset[Phase] = BOTH) -> int:
        """Add a name; return its index as codes have it."""
        return self.recorder.label(name, name, phase, phases)

    def step(self, *marked: tuple[int, int] | tuple[int, int, int], multithreaded: bool = False) -> RawStep:
        """Submit a step of (code, nanoseconds before the mark) or, for values, (code, 0, value); return it."""
        self.steps += 1
        start = self.clock.read() if self._start is None else self._start
        codes, readings = [], []
        for code, after_ns, *value in marked:
            self.host.advance(after_ns)
            codes.append(code)
            readings.append(value[0] if value else self.clock.read())
        end = self._start = self.clock.read()
        batch = MarkBatch(np.array(codes, np.int64).tobytes(), readings, THREAD, multithreaded, 0)
        raw = RawStep(self.steps, 0, self.steps, self.clock, start, end, batch)
        self.resolver.waiting.append(raw)
        self.resolver.give_up_oldest()
        return raw

    def frames(self) -> list[StepFrame]:
        """Return the frames that are ready."""
        return [frame for run in iter(self.resolver.next_run, None) for frame in run.frames]


def spans(frame: StepFrame) -> list[tuple[str, Phase, int, int]]:
    """Return name, phase, start and length of each span on the host."""
    return [(span.name, span.phase, span.start_ns, span.host_ns) for span in frame.spans]


# What is counted.


def test_steps_of_a_device_that_it_has_passed_are_resolved_together() -> None:
    """Statistics of the run are those of its frames, one by one."""
    bench = Bench(device := FakeDevice(FakeClock()))
    layer, hidden = bench.label("layer"), bench.recorder.label("hidden", "hidden", Phase.FORWARD, BOTH, shown=False)
    for ns in (300, 500, 700):
        device.work(ns)
        bench.step(
            (layer | marks.ENTER, 3), (hidden | marks.ENTER, 5), (hidden | marks.LEAVE, 1), (layer | marks.LEAVE, 2)
        )
    device.wait_here()
    (run,) = iter(bench.resolver.next_run, None)
    assert list(run.waited_ns) == [0, 500, 700]  # at most: the queue was empty at the end of each
    assert list(run.step_ns) == [frame.step_ns for frame in run.frames]
    assert run.total_ns.tolist() == [frame.total_ns.tolist() for frame in run.frames]
    assert run.overhead_ns == sum(frame.overhead_ns for frame in run.frames)
    together, alone = Aggregate(), Aggregate()
    together.add_run(run)
    for frame in run.frames:
        alone.add(frame)
    assert together.summary() == alone.summary()
    assert together.summary().clock == "device"


# Readings become times.


@pytest.mark.parametrize("on_device", [False, True])
def test_times_are_exact_however_late_the_clock(on_device: bool) -> None:
    """A clock that counts from the start of the century: a double has no room for its nanoseconds."""
    start_ns = 2**60
    bench = Bench(FakeDevice(FakeClock(start_ns)) if on_device else None, start_ns=start_ns)
    layer = bench.label("layer")
    for _ in range(2):
        bench.step((layer | marks.ENTER, 3), (layer | marks.LEAVE, 7))
    for frame in bench.frames():
        assert spans(frame) == [("layer", Phase.FORWARD, 3, 7)]
        assert frame.duration_ns == 10
        assert frame.start_ns.dtype == frame.host_ns.dtype == np.int64


# Steps that are alike, and steps that only look so.


def test_equal_marks_of_other_threads_are_not_equal_steps() -> None:
    """The same marks, once by one thread and once by two: the second step has a lane more."""
    bench = Bench()
    layer = bench.label("layer", phases=frozenset((Phase.FORWARD,)))
    for second in (7, 8, 7):
        bench.step(
            (marks.THREAD, 0, 7), (layer | marks.ENTER, 1), (marks.THREAD, 0, 7), (layer | marks.LEAVE, 1),
            (marks.THREAD, 0, second), (layer | marks.ENTER, 1), (marks.THREAD, 0, second), (layer | marks.LEAVE, 1),
            multithreaded=True,
        )  # fmt: skip
    lanes = [[span.lane for span in frame.spans] for frame in bench.frames()]
    assert [one[0] == one[1] for one in lanes] == [True, False, True]
    assert TRAINING_LANE not in lanes[0]


# The memory of plans and calls.


def test_a_backward_finds_its_call_in_each_of_the_steps_that_were_resolved_together() -> None:
    """Three equal steps, resolved as one matrix; later ones run the backward of a call of each."""
    bench = Bench()
    outer, inner = bench.label("outer"), bench.label("inner")
    one, two = marks.ORDINAL_STRIDE, 2 * marks.ORDINAL_STRIDE
    for _ in range(3):
        bench.step(
            (one | outer | marks.ENTER, 1), (two | inner | marks.ENTER, 1),
            (two | inner | marks.LEAVE, 1), (one | outer | marks.LEAVE, 1),
        )  # fmt: skip
    assert len(bench.frames()) == 3
    for made_in in (1, 3, 2):
        back = (bench.steps + 1 - made_in) * marks.STEP_STRIDE
        start, end = (two | inner | marks.BACKWARD_START) - back, (one | outer | marks.BACKWARD_END) - back
        bench.step((marks.GRAPH_BEGIN, 0), (start, 1), (end, 5), (marks.GRAPH_END, 0))
        (frame,) = bench.frames()
        found = [(span.name, span.host_ns) for span in frame.spans if span.name != "(backward)"]
        assert found == [("outer", 5), ("inner", 5)]
    assert bench.resolver.unmatched == 0


# Readings go back to the clock.


class Readings:
    """A device clock whose readings are counted: how many are out, and that none comes back twice."""

    def __init__(self, bench: Bench) -> None:
        assert bench.device is not None
        self.pool = bench.clock._pools[0]
        self.all = len(self.pool)

    @property
    def out(self) -> int:
        """The readings that were not given back."""
        assert len({id(stamp) for stamp in self.pool}) == len(self.pool)
        return self.all - len(self.pool)


def test_all_readings_of_a_step_go_back_but_the_end_that_the_next_step_begins_with() -> None:
    """One reading is out after each step, whatever the number of marks."""
    bench = Bench(FakeDevice(FakeClock()))
    readings, layer = Readings(bench), bench.label("layer")
    for calls in (0, 1, 2, 5):
        bench.step(*[(layer | marks.ENTER, 1), (layer | marks.LEAVE, 1)] * calls)
        assert len(bench.frames()) == 1
        assert readings.out == 1


def test_a_step_given_up_for_the_next_one_gives_its_readings_back() -> None:
    """What waits is bounded, and so is what it holds."""
    bench = Bench(FakeDevice(FakeClock(), lag_ns=10**9))
    readings, layer = Readings(bench), bench.label("layer")
    out = []
    for _ in range(PENDING + 4):
        bench.step((layer | marks.ENTER, 1), (layer | marks.LEAVE, 1))
        assert bench.frames() == []
        out.append(readings.out)
    assert out == [1 + 3 * min(steps, PENDING) for steps in range(1, PENDING + 5)]
    assert (bench.resolver.late_steps, len(bench.resolver.waiting)) == (4, PENDING)
    bench.resolver.give_up()
    assert (bench.resolver.late_steps, len(bench.resolver.waiting)) == (PENDING + 4, 0)
    assert bench.frames() == []
