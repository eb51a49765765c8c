"""What autoprof promises on a device: it never waits, kills no capture, changes no bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import autoprof
from autoprof.testing import ListSink
from benchmarks.engine import OPTIONS
from benchmarks.gpu.checks import never_waits
from benchmarks.workloads import Workload, reference, small_gpt, tiny_layers

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


@pytest.mark.parametrize("workload", ["layers", "gpt"])
def test_a_recorded_step_never_waits_for_the_device(workload: str) -> None:
    """Torch sees no synchronisation, and the host runs on while a long kernel is in front of it."""
    result = never_waits({"layers": tiny_layers, "gpt": small_gpt}[workload](CUDA))
    assert result["error"] is None
    assert result["host_ns"] < result["device_ns"] // 2


def test_a_graph_is_captured_while_a_session_is_open() -> None:
    """No query and no event enters the capture; the graph replays, and steps after it are recorded as before."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).cuda()
    x = torch.randn(4, 8, device="cuda")
    sink = ListSink()
    with autoprof.instrument(model, OPTIONS, sinks=[sink]) as session:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x).sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        session.step()
        graph = torch.cuda.CUDAGraph()
        model.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            captured = model(x)
            captured.sum().backward()
            captured = captured.detach()  # its graph would keep nodes of the capture's stream alive
            session.step()
        graph.replay()
        session.step()
        model(x).sum().backward()
        session.step()
        torch.cuda.synchronize()
        assert torch.equal(captured, model(x))
    assert not session.summary().notes
    assert sink.frames[-1].spans


def test_steps_are_bit_identical_on_the_device() -> None:
    """Outputs, gradients and parameters are equal to the last bit, where the device repeats itself at all."""
    first, second, profiled = train(False), train(False), train(True)
    if not same(first, second):
        pytest.skip("this device does not repeat its own bits without autoprof")
    assert same(first, profiled)


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def train(profiled: bool) -> list[Tensor]:
    torch.manual_seed(0)
    torch.cuda.manual_seed(0)
    workload: Workload = reference(CUDA, "tiny")
    kept: list[Tensor] = []
    workload.model.register_forward_hook(lambda _m, _a, output: kept.append(output.detach().clone()))
    session = None
    if profiled:
        config = {**workload.config, "sinks": {}}
        session = autoprof.instrument(workload.model, config, optimizer=workload.optimizer)
    for _ in range(3):
        workload.step()
        if session is not None:
            session.step()
    if session is not None:
        session.close()
    return [
        *kept,
        *(parameter.detach().clone() for parameter in workload.model.parameters()),
        torch.cuda.get_rng_state(),
    ]
