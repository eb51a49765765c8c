"""Models that inductor compiles for the device, and CUDA graphs: the same bits, and a time for the whole."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autoprof
from autoprof import Phase
from autoprof.base.summary import Row
from autoprof.testing import ListSink

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),  # TF32 and the like, from inductor itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CONFIG: dict[str, Any] = {"step": "manual", "sample": {"warmup": 0, "budget": None}, "flops": "off", "sinks": {}}
STEPS = 12


def layers() -> nn.Module:
    block = [nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*block, *[nn.Linear(64, 64), nn.LayerNorm(64)]).cuda()


def train(mode: str, sinks: list[ListSink] | None) -> tuple[list[Tensor], dict[str, int], Any]:
    """Return the losses and parameters, dynamo's counts of graphs and breaks, and the summary."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = layers()
    run: Any = torch.compile(model, mode=mode)
    optimizer = torch.optim.AdamW(model.parameters())
    session = None if sinks is None else autoprof.instrument(run, CONFIG, optimizer=optimizer, sinks=sinks)
    kept: list[Tensor] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = run(torch.ones(16, 64, device="cuda")).square().mean()
        kept.append(loss.detach().clone())
        loss.backward()
        optimizer.step()
        if session is not None:
            session.step()
    counters = torch._dynamo.utils.counters
    counts = {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "cudagraph skips": counters["inductor"]["cudagraph_skips"],
    }
    if session is not None:
        session.close()
    return [*kept, *(one.detach().clone() for one in model.parameters())], counts, session and session.summary()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_model_trains_as_without_a_session(mode: str) -> None:
    """The same bits, of as many graphs without more breaks; every step has the time of the whole model."""
    bare, expected, _ = train(mode, None)
    sink = ListSink()
    seen, counts, summary = train(mode, [sink])
    assert counts == expected
    assert len(seen) == len(bare)
    assert all(torch.equal(one, other) for one, other in zip(seen, bare, strict=True))
    assert [frame.step for frame in sink.frames] == list(range(1, STEPS + 1))
    for frame in sink.frames[3:]:
        phases = {span.phase for span in frame.spans if span.fqn is not None}
        assert phases == {Phase.FORWARD, Phase.BACKWARD}, frame.spans
    assert not any("error" in note for note in summary.notes)


def test_a_graph_is_captured_while_a_session_is_open() -> None:
    """No query and no event enters the capture; the graph replays, and steps after it are recorded as before."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).cuda()
    x = torch.randn(4, 8, device="cuda")
    sink = ListSink()
    with autoprof.instrument(model, CONFIG, sinks=[sink]) as session:
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


class Work(nn.Module):
    """Some matrix products, one after another, with an activation after each."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(times))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        return x


class Three(nn.Module):
    """Three parts, of which the second has more to do."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.first, self.second, self.third = Work(1), Work(times), Work(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x)))


def parts(times: int, mode: str = "default") -> tuple[dict[tuple[str, str], Row], Any]:
    """Return the rows of the parts by fqn and phase, and the summary."""
    torch._dynamo.reset()
    model = Three(times).cuda()
    run: Any = torch.compile(model, mode=mode)
    config = CONFIG | {"targets": [{"match": r"first|second|third|"}]}
    x = torch.randn(8192, 512, device="cuda")
    with autoprof.instrument(model, config) as session:
        for _ in range(STEPS):
            run(x).square().mean().backward()
            model.zero_grad(set_to_none=True)  # CUDA graphs use the memory again
            session.step()
    summary = session.summary()
    return {(row.fqn, str(row.phase)): row for row in summary.rows if row.fqn is not None}, summary


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_larger_part_of_a_compiled_model_has_a_longer_row_and_no_other_has(phase: str) -> None:
    """The rows inside one graph, by the device's clock."""
    small, _ = parts(1)
    large, _ = parts(10)
    assert large["second", phase].p50_ns > 5 * small["second", phase].p50_ns
    for other in ("first", "third"):
        assert large[other, phase].p50_ns < 1.5 * small[other, phase].p50_ns + 50_000
    inner = sum(large[name, phase].total_ns for name in ("first", "second", "third"))
    assert large["", phase].total_ns / 2 < inner <= large["", phase].total_ns


def test_a_model_that_cuda_graphs_replay_is_timed_whole_with_the_reason() -> None:
    rows, summary = parts(1, "reduce-overhead")
    assert ("", "forward") in rows
    assert ("second", "forward") not in rows
    assert any("CUDA graphs" in note for note in summary.notes)
