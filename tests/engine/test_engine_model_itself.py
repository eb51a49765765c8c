"""The model itself is always marked: phases are whole, and what lies beside a target is not charged to it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws
from test_engine_device import Kernel
from torch import Tensor, nn

from autoprof.base.frame import Phase
from autoprof.base.storage.records import Frames
from autoprof.testing import FakeClock, FakeDevice
from tests.saved_records import write_records

CHILD = {
    "targets": [{"match": "inner"}],
    "step": "manual",
    "sample": {"warmup": 0, "budget": None},
    "flops": "off",
    "sinks": {},
}


def make_model(clock: FakeClock) -> nn.Module:
    """Return a model whose forward takes 30 ns outside of its child, of 10; in backward 300 and 100."""

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, ns: int) -> Tensor:
            ctx.ns, ctx.name = ns, "slow"  # a name of the user hides the method of the node
            clock.advance(ns)
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            clock.advance(10 * ctx.ns)
            return grad, None

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = Slow.apply(x, 10)
            return out

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.inner = Inner()

        def forward(self, x: Tensor) -> Tensor:
            beside = Slow.apply(self.weight, 30)  # older than the nodes of the child, whose input has no node
            out: Tensor = self.inner(x) + beside
            return out

    return Model()


def test_the_phases_are_whole_where_the_model_is_no_target(tmp_path: Path) -> None:
    """Time between the targets belongs to the model's forward and backward, also in a saved run."""
    clock = FakeClock()
    model = make_model(clock)
    with Watched(model, clock=clock, config=CHILD) as watched:
        model(torch.ones(3, requires_grad=True)).sum().backward()
        watched.step()
    (frame,) = watched.frames
    check_laws(frame)
    spans = {(span.name, span.phase): span.host_ns for span in frame.spans}
    assert spans[("inner", Phase.FORWARD)] == 10
    assert spans[("inner", Phase.BACKWARD)] == 100
    assert {name for name, _ in spans} == {"inner", "(backward)"}
    assert frame.phase_ns() == {Phase.FORWARD: 40, Phase.BACKWARD: 400, Phase.OTHER: 0}
    assert frame.model_ns == {Phase.FORWARD: 30}
    assert watched.session.summary().phases == frame.phase_ns()
    records = write_records(tmp_path, [frame])
    written = json.loads(records.read_text("utf-8"))
    assert written["phases_ms"] == pytest.approx({"forward": 4e-5, "backward": 4e-4, "other": 0})
    (back,) = Frames(records)
    assert (back.model_ns, back.phase_ns()) == (frame.model_ns, frame.phase_ns())


def test_the_phases_of_a_device_are_whole_too() -> None:
    """Device time between the targets is the model's own."""
    device = FakeDevice(FakeClock())
    model = nn.Sequential(Kernel(device, 30), Kernel(device, 10))
    config = {**CHILD, "targets": [{"match": "1"}]}
    with Watched(model, clock=device.device_clock(), config=config) as watched:
        model(torch.ones(1))
        watched.step()
    (frame,) = watched.frames
    check_laws(frame)
    assert [span.name for span in frame.spans] == ["1"]
    assert frame.phase_ns()[Phase.FORWARD] == 40
    assert frame.model_ns == {Phase.FORWARD: 30}
