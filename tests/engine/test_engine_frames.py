"""Frames and runs by themselves: all that is known of a closed step is in its frame, and in the columns of its run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoprof import Phase
from autoprof._capture.mark_cost import MarkCost
from autoprof._capture.marks import codes as marks
from autoprof._capture.marks.mark_batch import MarkBatch
from autoprof._capture.recorder import Recorder
from autoprof._resolve import RawStep, Resolver
from autoprof.frame import FrameRun
from autoprof.testing import FakeClock, FakeDevice

THREAD = 1
LENGTH_NS = 100
CLOCK = FakeClock()


class Bench:
    """A resolver, and steps of 100 ns that enter a layer after 10 ns and leave it after 30."""

    def __init__(self) -> None:
        recorder = Recorder(CLOCK)
        self.resolver = Resolver(recorder.labels, MarkCost(3.0, 5.0))
        self.layer = recorder.label("layer", "layer", Phase.FORWARD, frozenset((Phase.FORWARD,)))

    def step(self, number: int, dropped: int = 0, detail_ns: int = 0, **fields: Any) -> RawStep:
        """Submit a step with these fields; return it."""
        start = number * LENGTH_NS
        codes = np.array([self.layer | marks.ENTER, self.layer | marks.LEAVE], np.int64).tobytes()
        batch = MarkBatch(codes, [start + 10, start + 30], THREAD, False, dropped, (), detail_ns)
        raw = RawStep(number, 7_000 + number, number, CLOCK, start, start + LENGTH_NS, batch)._replace(**fields)
        self.resolver.submit(raw)
        return raw

    def runs(self) -> list[FrameRun]:
        """Return the runs that are ready."""
        return list(iter(self.resolver.next_run, None))


def test_a_frame_has_all_that_is_known_of_its_step() -> None:
    """Each field of the closed step, and those that its marks give."""
    bench = Bench()
    bench.step(
        4,
        dropped=2,
        detail_ns=700,
        scalars={"loss": np.float32(0.5), "samples": 8},
        memory={"allocated_bytes": 12},
        overhead_ns=1_000,
        gap_steps=5,
        gap_ns=600,
        gap_overhead_ns=60,
        gap_scalars={"samples": [8, 4]},
        cut=3,
    )
    (run,) = bench.runs()
    (frame,) = run.frames
    assert (frame.step, frame.start_unix_ns, frame.duration_ns) == (4, 7_004, LENGTH_NS)
    assert [(span.name, span.start_ns, span.host_ns) for span in frame.spans] == [("layer", 10, 20)]
    assert frame.scalars == {"loss": 0.5, "samples": 8.0}
    assert all(type(value) is float for value in frame.scalars.values())
    assert frame.memory == {"allocated_bytes": 12}
    assert frame.overhead_ns == 1_000 + 700 + 2 * 3
    assert frame.dropped == 2
    assert not frame.warmup
    assert (frame.gap_steps, frame.gap_ns, frame.gap_overhead_ns, frame.gap_scalars) == (5, 600, 60, {"samples": 12.0})
    assert frame.cut == 3
    assert frame.micro_steps is None
    assert frame.device_duration_ns is None


def test_a_plain_run_has_the_columns_of_its_frames() -> None:
    """Statistics take the columns, sinks the frames: both say the same."""
    bench = Bench()
    shared = {"loss": 1}
    bench.step(1, scalars=shared, overhead_ns=10, cut=2, memory={"allocated_bytes": 5})
    bench.step(2, scalars={"loss": np.float64(2)}, overhead_ns=20, cut=2)
    bench.step(3, scalars=shared, overhead_ns=30, detail_ns=40, cut=2)
    (run,) = bench.runs()
    assert run.plain
    assert list(run.steps) == [1, 2, 3] == [frame.step for frame in run.frames]
    assert list(run.duration_ns) == [LENGTH_NS] * 3
    assert run.total_ns.tolist() == [[20]] * 3
    assert run.overhead_ns == sum(frame.overhead_ns for frame in run.frames) == 60 + 40 + 3 * 2 * 3
    assert list(run.scalars) == [{"loss": 1.0}, {"loss": 2.0}, {"loss": 1.0}] == [f.scalars for f in run.frames]
    assert run.scalars[0] is run.scalars[2]
    assert list(run.memory) == [frame.memory for frame in run.frames]
    assert run.cut == 2 == run.frames[0].cut
    assert run.layout is run.frames[1].layout


@pytest.mark.parametrize(
    "other",
    [
        {"warmup": True},
        {"dropped": 1},
        {"cut": 9},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_step_that_statistics_take_by_itself_is_a_run_of_its_own(other: dict[str, Any]) -> None:
    """Between plain ones, in order; another cut begins a run as well."""
    bench = Bench()
    for number in (1, 2, 3, 4, 5):
        bench.step(number, **(other if number == 3 else {}))
    runs = bench.runs()
    assert [[frame.step for frame in run.frames] for run in runs] == [[1, 2], [3], [4, 5]]
    assert [run.plain for run in runs] == [True, "cut" in other, True]
    assert [run.frames[0].cut for run in runs] == [0, other.get("cut", 0), 0]


def marked(bench: Bench, *marked: tuple[int, int], batch: dict[str, Any] | None = None) -> Any:
    """Submit a step of 100 ns with these (code, nanoseconds since its start); return its frame."""
    codes, times = zip(*marked, strict=True)
    made = MarkBatch(np.array(codes, np.int64).tobytes(), list(times), THREAD, False, 0)._replace(**(batch or {}))
    bench.resolver.submit(RawStep(1, 0, 1, CLOCK, 0, LENGTH_NS, made))
    (run,) = bench.runs()
    return run.frames[0]


def test_a_pause_inside_a_span_is_no_part_of_it_nor_of_the_step() -> None:
    """What follows is that much earlier."""
    bench = Bench()
    enter, leave = bench.layer | marks.ENTER, bench.layer | marks.LEAVE
    frame = marked(bench, (enter, 10), (marks.PAUSE, 30), (marks.UNPAUSE, 60), (leave, 80), (enter, 85), (leave, 95))
    assert [(span.start_ns, span.host_ns) for span in frame.spans] == [(10, 40), (55, 10)]
    assert frame.duration_ns == LENGTH_NS - 30


def test_a_pause_that_is_the_first_mark_begins_there() -> None:
    """The time of the step before it counts; that of one that was open already does not."""
    bench = Bench()
    enter, leave = bench.layer | marks.ENTER, bench.layer | marks.LEAVE
    frame = marked(bench, (marks.PAUSE, 5), (marks.UNPAUSE, 25), (enter, 35), (leave, 45))
    assert [(span.start_ns, span.host_ns) for span in frame.spans] == [(15, 10)]
    assert frame.duration_ns == LENGTH_NS - 20


def test_a_logged_duration_has_its_own_length_on_the_device() -> None:
    """It was measured elsewhere; spans beside it have the device's times."""
    device = FakeDevice(FakeClock())
    clock = device.device_clock()
    recorder = Recorder(device.clock)
    resolver = Resolver(recorder.labels, MarkCost())
    layer = recorder.label("layer", "layer", Phase.FORWARD, frozenset((Phase.FORWARD,)))
    logged = recorder.label("elsewhere", "elsewhere", Phase.USER, frozenset((Phase.USER,)))
    readings: list[Any] = [clock.read()]
    for _ in range(3):
        device.clock.advance(20)
        readings.append(clock.read())
    start, entered, left, end = readings
    codes = np.array([layer | marks.ENTER, logged | marks.LOGGED, layer | marks.LEAVE], np.int64).tobytes()
    resolver.submit(RawStep(1, 0, 1, clock, start, end, MarkBatch(codes, [entered, 7, left], THREAD, False, 0)))
    run = resolver.next_run(wait=True)
    assert run is not None
    (frame,) = run.frames
    spans = {span.name: span for span in frame.spans}
    assert spans["elsewhere"].device_ns == spans["elsewhere"].host_ns == 7
    assert spans["elsewhere"].host_bound_ns is None
    assert spans["layer"].device_ns == 20
    assert spans["layer"].host_bound_ns is not None
