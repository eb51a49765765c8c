"""A step on several streams and devices: each stream is an account of its own, exact to the nanosecond."""

from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, everything
from fake_engine import On, Op, backward_on_thread, launch
from torch import Tensor, nn

from autoprof import Phase, StepFrame
from autoprof.base.stats import UNTIMED_STEPS
from autoprof.resolve.device import TWO_STREAMS
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
