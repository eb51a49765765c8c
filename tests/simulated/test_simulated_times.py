"""Device times of a device that torch itself drives: known lengths to one per cent, wherever the kernels run.

Steps run behind a hold on the streams: the device then has no gaps, however slow the host is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from engine_laws import check_laws, everything
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import autoprof
from autoprof import Phase, StepFrame
from autoprof.base.frame import STREAM_LANES, TRAINING_LANE
from autoprof.testing import ListSink
from benchmarks.gpu.kernels import Sleeper

if TYPE_CHECKING:
    from simulated_accelerator import Simulated

MS = 1_000_000
STEPS = 4


class Kernel(Sleeper):
    """A kernel of known length on the stream of its input, in forward and in backward."""

    def __init__(self, sim: Simulated, forward_ns: float, backward_ns: float = 0, device: int = 0) -> None:
        super().__init__(lambda ns: sim.sleep(ns, device) if ns else None, forward_ns, backward_ns)


def layer(device: str = "sim") -> nn.Linear:
    return nn.Linear(8, 8, device=device)


def record(
    sim: Simulated, model: nn.Module, step: Callable[[], object], *, devices: tuple[int, ...] = (0,), **given: Any
) -> tuple[list[StepFrame], autoprof.Summary]:
    """Run steps, each behind a hold, during none of which the host may wait; return the frames and the summary."""
    sink, optimizer = ListSink(), given.pop("optimizer", None)
    session = autoprof.instrument(model, everything(**given), sinks=[sink], optimizer=optimizer)
    for _ in range(STEPS):
        before = sim.waits
        with sim.held(*devices):
            step()
            session.step()
        assert sim.waits == before
        sim.finish()
    session.close()
    assert len(sink.frames) == STEPS
    for frame in sink.frames:
        check_laws(frame)
        assert frame.device_duration_ns is not None
    return sink.frames, session.summary()


def assert_lengths(frames: list[StepFrame], expected: dict[tuple[str, Phase], float]) -> None:
    """Each span of these names has its length on every step, within one per cent."""
    for (fqn, phase), ns in expected.items():
        for frame in frames:
            measured = [span.device_ns for span in frame.spans if span.fqn == fqn and span.phase is phase]
            assert measured == [pytest.approx(ns, rel=0.01)], (fqn, phase)


def lanes_of(frame: StepFrame) -> dict[str, int]:
    return {span.fqn: span.lane for span in frame.spans if span.phase is Phase.FORWARD}


def test_forward_and_backward_have_the_lengths_of_their_kernels(sim: Simulated) -> None:
    """Backward runs in a thread of the device."""
    model = nn.Sequential(layer(), Kernel(sim, 2 * MS, 3 * MS), layer(), Kernel(sim, MS, 5 * MS), layer())
    x = torch.randn(4, 8, device="sim")
    frames, _ = record(sim, model, lambda: model(x).sum().backward(), targets=[{"match": ".+"}])
    expected = {("1", Phase.FORWARD): 2 * MS, ("1", Phase.BACKWARD): 3 * MS}
    assert_lengths(frames, {**expected, ("3", Phase.FORWARD): MS, ("3", Phase.BACKWARD): 5 * MS})


def test_a_side_stream_is_a_lane_of_its_own(sim: Simulated) -> None:
    """Two modules beside each other have each their own length; a backward that changes its stream has none."""
    side = torch.Stream(device="sim")

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.out = layer(), layer()
            self.side, self.main = Kernel(sim, 6 * MS, 4 * MS), Kernel(sim, 2 * MS, 3 * MS)

        def forward(self, x: Tensor) -> Tensor:
            x, main = self.first(x), torch.accelerator.current_stream()
            side.wait_stream(main)
            with side:
                there = self.side(x)
            here = self.main(x)
            main.wait_stream(side)
            return self.out(here + there)

    model, x = Beside(), torch.randn(4, 8, device="sim")
    frames, _ = record(sim, model, lambda: model(x).sum().backward(), targets=[{"match": ".+"}])
    assert_lengths(frames, {("side", Phase.FORWARD): 6 * MS, ("main", Phase.FORWARD): 2 * MS})
    for frame in frames:
        lanes = lanes_of(frame)
        assert lanes["main"] == TRAINING_LANE
        assert lanes["side"] >= STREAM_LANES


def test_each_part_of_a_model_on_two_devices_has_its_own_time(sim: Simulated) -> None:
    """Forward and backward of both parts; the second part is beside the step of the first."""

    class To(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to("sim:1")

    model = nn.Sequential(
        layer(),
        Kernel(sim, 2 * MS, 3 * MS),
        To(),
        layer("sim:1"),
        Kernel(sim, 4 * MS, 5 * MS, device=1),
        layer("sim:1"),
    )
    x = torch.randn(4, 8, device="sim")
    frames, _ = record(sim, model, lambda: model(x).sum().backward(), devices=(0, 1), targets=[{"match": ".+"}])
    expected = {("1", Phase.FORWARD): 2 * MS, ("1", Phase.BACKWARD): 3 * MS}
    assert_lengths(frames, {**expected, ("4", Phase.FORWARD): 4 * MS, ("4", Phase.BACKWARD): 5 * MS})
    for frame in frames:
        lanes = lanes_of(frame)
        assert lanes["1"] == TRAINING_LANE
        assert lanes["4"] != TRAINING_LANE


def test_times_go_with_a_model_that_moves(sim: Simulated) -> None:
    """``model.to("sim:1")`` inside a step, and back: that step is excluded, every other has its true lengths."""
    device = 0
    kernel = Sleeper(lambda ns: sim.sleep(ns, device), 2 * MS, 3 * MS)
    model, sink = nn.Sequential(layer(), kernel, layer()), ListSink()
    with autoprof.instrument(model, everything(targets=[{"match": ".+"}]), sinks=[sink]) as session:
        for device in (0, 1, 0):
            model.to(f"sim:{device}")
            x = torch.randn(4, 8, device=f"sim:{device}")
            for _ in range(3):
                with sim.held(0, 1):
                    model(x).sum().backward()
                    session.step()
                sim.finish()
    assert [frame.step for frame in sink.frames] == list(range(1, 10))
    moved = [frame for frame in sink.frames if frame.step in (4, 7)]
    stayed = [frame for frame in sink.frames if frame not in moved]
    assert_lengths(stayed, {("1", Phase.FORWARD): 2 * MS, ("1", Phase.BACKWARD): 3 * MS})
    assert all(frame.warmup for frame in moved)
    assert not any(frame.warmup for frame in stayed)
    for frame in sink.frames:
        check_laws(frame)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recompute_has_its_length(sim: Simulated, reentrant: bool) -> None:
    """A checkpointed kernel runs once in forward and again in backward."""
    inner = Kernel(sim, 2 * MS, 3 * MS)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = layer(), inner, layer()

        def forward(self, x: Tensor) -> Tensor:
            recomputed = nn.Sequential(self.inner, self.last)
            kept: Tensor = checkpoint(recomputed, self.first(x), use_reentrant=reentrant)
            return kept

    model, x = Checkpointed(), torch.randn(4, 8, device="sim")
    frames, _ = record(sim, model, lambda: model(x).sum().backward(), targets=[{"match": ".+"}])
    assert_lengths(frames, {("inner", Phase.FORWARD): 2 * MS, ("inner", Phase.BACKWARD): 3 * MS})
    for frame in frames:
        assert frame.phase_ns()[Phase.RECOMPUTE] == pytest.approx(2 * MS, rel=0.03)
