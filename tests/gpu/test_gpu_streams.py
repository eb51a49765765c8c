"""A step on several streams, and spans that wait for the host: exact on the fake device, within its scatter on CUDA."""

from collections.abc import Callable
from typing import Any

import pytest
from either_device import Model, make_device
from engine_laws import check_laws
from fake_engine import Beside, On, Op, launch
from torch import Tensor, nn

import autoprof
from autoprof import Phase, StepFrame, Summary
from autoprof.base.frame import STREAM_LANES, TRAINING_LANE
from autoprof.resolve.device import TWO_STREAMS
from autoprof.testing import ListSink

MS = 1_000_000
STEPS = 5


@pytest.fixture(params=["fake", pytest.param("cuda", marks=pytest.mark.gpu)], scope="module")
def device(request: pytest.FixtureRequest) -> Any:
    return make_device(request.param)


def record(device: Any, ops: nn.Module, step: Callable[[Tensor], object]) -> tuple[list[StepFrame], Summary]:
    """Run steps without a wait; return all frames but the first, whose kernels are still being loaded."""
    model, sink = Model(device, ops), ListSink()
    session = device.open(model, sink)
    for _ in range(STEPS):
        x = device.input()
        with device.never_waiting():
            step(model(launch(device, x, 0, 0)))
            session.step()
        device.finish()
    session.close()
    for frame in sink.frames:
        check_laws(frame)
    return sink.frames[1:], session.summary()


def forward_only(_value: Tensor) -> None:
    """Run no backward."""


def middle_ns(frames: list[StepFrame], name: str, phase: Phase = Phase.FORWARD) -> int:
    """Return the median device time of the spans of a name."""
    times = [s.device_ns for frame in frames for s in frame.spans if s.name == name and s.phase is phase]
    assert len(times) == STEPS - 1
    assert None not in times
    return sorted(time for time in times if time is not None)[len(times) // 2]


def test_two_streams_at_once_keep_their_own_lengths(device: Any) -> None:
    """The side stream is a lane beside the step; the parent lasts as long as the longer of both."""
    frames, _ = record(device, nn.Sequential(Beside(device, Op(device, 4 * MS), Op(device, 2 * MS))), forward_only)
    for name, expected in (("ops/0/side", 4 * MS), ("ops/0/main", 2 * MS), ("ops/0", 4 * MS)):
        assert abs(middle_ns(frames, name) - expected) <= device.tolerance_ns(expected)
    lanes = {span.name: span.lane for span in frames[-1].spans}
    assert lanes == {"ops/0": TRAINING_LANE, "ops/0/main": TRAINING_LANE, "ops/0/side": STREAM_LANES}


def test_a_backward_that_ends_on_another_stream_has_no_device_time_and_is_counted(device: Any) -> None:
    """On CUDA it runs in autograd's own thread; what begins and ends on the step's stream keeps its time."""
    ops = nn.Sequential(
        Op(device, MS, 2 * MS), On(device, Op(device, MS, 3 * MS), (0, 1)), Op(device, MS, 4 * MS), nn.Identity()
    )

    def step(value: Tensor) -> None:
        with device.on(*device.place):  # the fake engine leaves its last stream current
            value.sum().backward()

    frames, summary = record(device, ops, step)
    measured = middle_ns(frames, "ops/0", Phase.BACKWARD)
    assert abs(measured - 2 * MS) <= device.tolerance_ns(2 * MS)
    assert summary.skipped[TWO_STREAMS] > 0


def test_a_step_on_a_side_stream_has_that_streams_account(device: Any) -> None:
    """Where the whole loop runs on a side stream, its spans are the step's."""
    with device.on(0, 3):
        frames, _ = record(device, nn.Sequential(Op(device, 2 * MS), Op(device, MS)), forward_only)
    for frame in frames:
        assert {span.lane for span in frame.spans} == {TRAINING_LANE}
        assert frame.phase_ns()[Phase.FORWARD] >= 3 * MS * 9 // 10


def test_spans_that_wait_for_launches_are_marked_and_queued_ones_are_not(device: Any) -> None:
    """The host takes 2 ms to launch 5 µs of work, then launches 3 ms at once; nobody asked the device."""
    slow, fast = Op(device, 5_000, host_ns=2 * MS), Op(device, 3 * MS)
    frames, summary = record(device, nn.Sequential(slow, fast), forward_only)
    for frame in frames:
        assert {span.name: span.host_bound for span in frame.spans} == {"ops/0": True, "ops/1": False}
    shares = {row.name: row.host_bound for row in summary.rows}
    assert shares["ops/0"] is not None
    assert shares["ops/1"] is not None
    assert shares["ops/0"] > 0.9
    assert shares["ops/1"] < 0.1


def test_a_span_between_two_streams_has_no_device_time(device: Any) -> None:
    """It says so, and is counted once a step."""

    def step(_value: Tensor) -> None:
        between = autoprof.span("between")
        between.__enter__()
        with device.on(0, 1):
            device.work(MS)
            between.__exit__(None, None, None)

    frames, summary = record(device, nn.Sequential(Op(device, MS)), step)
    assert [s.device_ns for frame in frames for s in frame.spans if s.name == "between"] == [None] * (STEPS - 1)
    assert summary.skipped[TWO_STREAMS] == STEPS
