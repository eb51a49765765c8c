"""A step on several streams and devices: each stream is an account of its own, exact to the nanosecond."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, everything
from fake_engine import Beside, On, Op, backward_on_thread, launch
from torch import Tensor, nn

import autoprof
from autoprof import Phase, StepFrame
from autoprof._resolve.device import TWO_STREAMS
from autoprof._stats import UNTIMED_STEPS
from autoprof.frame import STREAM_LANES, TRAINING_LANE, UNTIMED_LANE
from autoprof.testing import FakeClock, FakeDevice

EVERY = everything(targets=[{"match": ".+"}])


def one(frame: StepFrame, name: str, phase: Phase = Phase.FORWARD) -> Any:
    """Return the only span of a name in a phase."""
    (span,) = (span for span in frame.spans if span.name == name and span.phase is phase)
    return span


def run(device: FakeDevice, model: nn.Module, steps: int = 1, backward: Any = None) -> Watched:
    """Train for some steps on a fake device and close the session."""
    with Watched(model, clock=device.device_clock(), config=EVERY) as watched:
        for _ in range(steps):
            value = model(launch(device, torch.ones(1, requires_grad=True), 0, 0))
            if backward is not None:
                backward(value.sum())
                device.switch_to(0, 0)
            watched.step()
    for frame in watched.frames:
        check_laws(frame)
    return watched


def test_two_streams_at_once_keep_their_own_lengths() -> None:
    """What runs beside the step's stream is no part of its account: the parent spends the rest waiting."""
    device = FakeDevice(FakeClock())
    model = nn.Sequential(Beside(device, Op(device, 4_000), Op(device, 1_500)))
    (frame,) = run(device, model).frames
    assert [one(frame, name).device_ns for name in ("0", "0/main", "0/side")] == [4_000, 1_500, 4_000]
    assert [one(frame, name).lane for name in ("0", "0/main", "0/side")] == [TRAINING_LANE, TRAINING_LANE, STREAM_LANES]
    assert one(frame, "0/side").parent is None
    own = frame.layout.self_ns(frame.total_ns)
    assert own[frame.spans.index(one(frame, "0"))] == 2_500
    assert frame.phase_ns() == {Phase.FORWARD: 4_000, Phase.OTHER: 0}


@pytest.mark.parametrize("thread", [False, True], ids=["caller's thread", "autograd's thread"])
def test_a_backward_that_ends_at_a_node_of_another_stream_has_no_device_time(thread: bool) -> None:
    """It is counted; what begins and ends on the step's stream keeps its time."""
    device = FakeDevice(FakeClock(), lag_ns=90)
    model = nn.Sequential(Op(device, 10, 100), On(device, Op(device, 30, 300), (0, 1)), Op(device, 5, 50))

    def backward(value: Tensor) -> None:
        if thread:
            backward_on_thread(value, device)
        else:
            value.backward()

    watched = run(device, model, steps=2, backward=backward)
    for frame in watched.frames:
        times = [one(frame, name, Phase.BACKWARD).device_ns for name in ("2", "1/child", "1", "0")]
        assert times == [None, None, None, 100]
    assert watched.session.summary().skipped == {TWO_STREAMS: 6}


def test_a_span_between_two_streams_has_no_device_time_and_says_so() -> None:
    """It has its host's time, is no row, and is counted; what it holds keeps its own."""
    device = FakeDevice(FakeClock())
    model = nn.Sequential(Op(device, 10, host_ns=3), Op(device, 20, host_ns=4))
    with Watched(model, clock=device.device_clock(), config=EVERY) as watched:
        with autoprof.span("around"):
            between = autoprof.span("between")
            between.__enter__()
            model[0](torch.ones(1))
            device.switch_to(0, 1)
            with autoprof.span("there"):
                device.work(70)
            between.__exit__(None, None, None)
            device.switch_to(0, 0)
        watched.step()
    (frame,) = watched.frames
    check_laws(frame)
    between_span = one(frame, "between", Phase.USER)
    assert (between_span.host_ns, between_span.device_ns, between_span.lane) == (3, None, UNTIMED_LANE)
    assert frame.spans[one(frame, "0").parent].name == "around"
    assert one(frame, "there", Phase.USER).device_ns == 70
    summary = watched.session.summary()
    assert summary.skipped == {TWO_STREAMS: 1}
    assert {row.name for row in summary.rows} == {"around", "0", "there"}


def test_a_step_whose_ends_no_stream_knows_has_the_hosts_account() -> None:
    """It closes on the host's clock, and is counted instead of mixed with device times."""
    device = FakeDevice(FakeClock(tick_ns=1))
    model = nn.Sequential(Op(device, 60))
    with Watched(model, clock=device.device_clock(), config=EVERY) as watched:
        model(torch.ones(1))
        watched.step()
        device.switch_to(0, 1)
        model(torch.ones(1))
        device.switch_to(0, 2)
        watched.step()
        device.switch_to(0, 0)
    first, second = watched.frames
    check_laws(second)
    assert second.device_duration_ns is None
    assert second.step_ns == second.duration_ns
    summary = watched.session.summary()
    assert (summary.steps, summary.total_step_ns) == (1, first.device_duration_ns)
    assert summary.skipped == {UNTIMED_STEPS: 1}
