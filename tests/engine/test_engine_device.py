"""Device time on a fake device: exact to the nanosecond, pooled, in order, and never waited for but at the end."""

from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, everything
from torch import nn

from autoprof import Session
from autoprof.reports.run_facts import bias_text
from autoprof.session.pipeline import MAX_WITH_EVENTS
from autoprof.testing import FakeClock, FakeDevice, ListSink, open_session

FORWARD_ONLY = everything(targets=[{"match": ".+", "phases": ["forward"]}])


class Kernel(nn.Module):
    """Queue a kernel of known length, after some time on the host; on another stream or device if told."""

    def __init__(self, device: FakeDevice, device_ns: int, host_ns: int = 0, place: tuple[int, int] = (0, 0)) -> None:
        super().__init__()
        self.device, self.device_ns, self.host_ns, self.place = device, device_ns, host_ns, place

    def forward(self, x: Any) -> Any:
        self.device.clock.advance(self.host_ns)
        with self.device.on(*self.place):
            self.device.work(self.device_ns)
        return x


class OnStream(nn.Module):
    """Make another stream or device current around the whole call of the child."""

    def __init__(self, device: FakeDevice, child: nn.Module, place: tuple[int, int]) -> None:
        super().__init__()
        self.device, self.child, self.place = device, child, place

    def forward(self, x: Any) -> Any:
        with self.device.on(*self.place):
            return self.child(x)


def test_device_time_is_the_kernels_own_however_far_the_host_is_ahead() -> None:
    """The host only launches; the queue starts a kernel when the one before is done."""
    device = FakeDevice(FakeClock(), lag_ns=500)
    model = nn.Sequential(Kernel(device, 7_001, host_ns=10), Kernel(device, 13, host_ns=20), Kernel(device, 400))
    with Watched(model, clock=device.device_clock(), config=FORWARD_ONLY) as watched:
        model(torch.ones(1))
        watched.step()
    (frame,) = watched.frames
    check_laws(frame)
    assert [(span.host_ns, span.device_ns) for span in frame.spans] == [(10, 7_011), (20, 13), (0, 400)]
    assert frame.duration_ns == 30
    assert frame.device_duration_ns == 7_424
    assert sum(frame.phase_ns().values()) == 7_424


@pytest.mark.parametrize("every", [4, 64], ids=["gaps", "a gap without an end"])
def test_unsampled_steps_take_the_devices_time_however_far_the_host_is_ahead(every: int) -> None:
    """The mean of all steps, the throughput and the report agree with the recorded ones."""
    device, sink = FakeDevice(FakeClock()), ListSink()
    # In seconds: our own work, which counts, takes real time.
    model = nn.Sequential(Kernel(device, 5_000_000_000, host_ns=1_000_000_000))
    device.work(1_000_000_000)  # the first step finds a busy device, too
    config = {**FORWARD_ONLY, "sample": {"every": every, "warmup": 0, "budget": None}}
    with open_session(model, config, clock=device.device_clock(), sinks=[sink]) as session:
        for _ in range(63):
            model(torch.ones(1))
            session.log(samples=8)
            session.step()
    summary = sink.summary
    assert summary is not None
    assert (summary.all_steps, summary.clock) == (63, "device")
    for mean_ns in (summary.run_mean_ns, summary.unsampled_ns / summary.unsampled_steps, summary.step_mean_ns):
        assert mean_ns == pytest.approx(5_000_000_000, rel=0.01)
    assert summary.throughput == pytest.approx(8 / 5, rel=0.01)
    assert bias_text(summary) is None


def test_a_step_waits_its_turn_until_the_device_has_passed_it() -> None:
    """No frame comes early, and none comes out of order."""
    clock = FakeClock()
    device = FakeDevice(clock, lag_ns=1_000)
    model = nn.Sequential(Kernel(device, 100, host_ns=1))
    with Watched(model, clock=device.device_clock(), config=FORWARD_ONLY) as watched:
        for _ in range(3):
            model(torch.ones(1))
            watched.step()
        assert watched.frames == []
        clock.now_ns = 1_000 + 101
        assert [frame.step for frame in watched.frames] == [1]
        clock.now_ns = 1_000 + 301
        assert [frame.step for frame in watched.frames] == [1, 2, 3]


def test_a_later_step_never_overtakes_one_that_another_stream_holds_up() -> None:
    """The first step has work on a slow side stream; the second one is done, and waits."""
    clock = FakeClock()
    device = FakeDevice(clock)
    model = nn.Sequential(OnStream(device, Kernel(device, 10_000, place=(0, 1)), (0, 1)))
    with Watched(model, clock=device.device_clock(), config=FORWARD_ONLY) as watched:
        model(torch.ones(1))
        watched.step()
        watched.step()
        clock.advance(100)
        assert watched.frames == []
        clock.advance(10_000)
        assert [frame.step for frame in watched.frames] == [1, 2]


def test_only_close_waits() -> None:
    """Steps, summaries and sinks never do; close does, once, and then every step is there."""
    device = FakeDevice(FakeClock(), lag_ns=10**9)
    model = nn.Sequential(Kernel(device, 100, host_ns=1))
    watched = Watched(model, clock=device.device_clock(), config=FORWARD_ONLY)
    for _ in range(5):
        model(torch.ones(1))
        watched.step()
    watched.session.summary()
    assert device.waits == 0
    assert watched.sink.frames == []
    watched.session.close()
    assert device.waits > 0
    assert [frame.step for frame in watched.sink.frames] == [1, 2, 3, 4, 5]
    assert watched.session.summary().steps == 5


def test_events_come_from_a_pool_and_go_back_to_it() -> None:
    """However many steps: no more events are made than those steps need that wait for a pass.

    Here a pass comes when too many wait: next to no time goes by.
    """
    device = FakeDevice(FakeClock())
    model = nn.Sequential(*[Kernel(device, 1, host_ns=1) for _ in range(20)])
    with Watched(model, clock=device.device_clock(), config=FORWARD_ONLY) as watched:
        made = []
        for _ in range(3):
            for _ in range(2 * MAX_WITH_EVENTS):
                model(torch.ones(1))
                watched.step()
            made.append(device.made)
        assert made[0] <= 41 * (MAX_WITH_EVENTS + 2)
        assert made == made[:1] * 3


def test_nothing_is_queried_or_recorded_while_a_graph_is_captured() -> None:
    """Either would kill the capture; spans inside keep their host time, and device time says not measured."""
    clock = FakeClock(tick_ns=1)
    device = FakeDevice(clock)
    model = nn.Sequential(Kernel(device, 10, host_ns=5), Kernel(device, 10, host_ns=5))
    with Watched(model, clock=device.device_clock(), config=FORWARD_ONLY) as watched:
        model(torch.ones(1))
        watched.step()
        device.capturing = True
        queries, made = device.queries, device.made
        model(torch.ones(1))
        watched.step()
        watched.session.summary()
        assert device.queries == queries
        device.capturing = False
        clock.advance(10**6)
        model(torch.ones(1))
        watched.step()
        clock.advance(10**6)
        frames = watched.frames
        assert device.made == made
    assert [frame.step for frame in frames] == [1, 2, 3]
    for frame in frames:
        check_laws(frame)
    assert [span.device_ns for span in frames[1].spans] == [None, None]
    assert [span.host_ns > 0 for span in frames[1].spans] == [True, True]


def test_a_pause_is_charged_to_no_step_on_the_device_either() -> None:
    """What the device did meanwhile is taken out of the step's device time."""
    device = FakeDevice(FakeClock())
    model = nn.Sequential(Kernel(device, 100))
    with Watched(model, clock=device.device_clock(), config=FORWARD_ONLY) as watched:
        model(torch.ones(1))
        with watched.session.pause():
            device.work(5_000)
        model(torch.ones(1))
        watched.step()
    (frame,) = watched.frames
    assert frame.device_duration_ns == 200
    assert [span.device_ns for span in frame.spans] == [100, 100]


def test_a_scalar_on_the_device_is_read_when_its_step_is_resolved() -> None:
    """The copy is queued in the step; its value is read after the device passed the step's end."""
    device = FakeDevice(FakeClock(), lag_ns=1_000)
    sink = ListSink()
    session: Session = open_session(
        nn.Linear(1, 1), FORWARD_ONLY | {"targets": [{"match": ".*"}]}, clock=device.device_clock(), sinks=[sink]
    )
    session.log(loss=torch.tensor(2.5))
    session.step()
    session.close()
    assert sink.frames[0].scalars == {"loss": 2.5}
