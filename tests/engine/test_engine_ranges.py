"""Ranges for other tools: ``torch.profiler`` and Nsight see autoprof's names, nested as the spans are."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
import torch
from attached import is_marked
from hypothesis import HealthCheck, assume, given, settings
from random_nests import build, nests
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import autoprof
from autoprof._capture.hooks import ranges as ranges_module
from autoprof.errors import SessionError
from autoprof.frame import Phase
from autoprof.testing import ListSink

CONFIG: dict[str, Any] = {"targets": [{"match": ".*|"}], "sinks": {}, "ranges": "profiler"}


class Block(nn.Module):
    """Two layers and a residual."""

    def __init__(self, checkpointed: bool | None = None) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.checkpointed = checkpointed

    def part(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.checkpointed is None:
            return x + self.part(x)
        return x + checkpoint(self.part, x, use_reentrant=self.checkpointed)


class Net(nn.Module):
    """A stem, a block, a head."""

    def __init__(self, checkpointed: bool | None = None) -> None:
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(4, 4), Block(checkpointed), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.stem(x)))


Tree = list[tuple[str, "Tree"]]


def names_of(model: nn.Module) -> set[str]:
    return {name.replace(".", "/") or type(model).__name__ for name, _ in model.named_modules()}


def tree(found: profile, known: set[str]) -> Tree:
    """Reduce a profile to the ranges of these names, nested by their times."""
    wanted = known | {f"{name} [{phase}]" for name in known for phase in ("backward", "recompute")}
    events = [
        event for event in found.events() if event.name in wanted | {"(backward)", "Optimizer", "Loss/VGG", "Data"}
    ]
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    roots: Tree = []
    open_: list[tuple[float, Tree]] = []
    for event in events:
        while open_ and open_[-1][0] < event.time_range.end:
            assert open_[-1][0] <= event.time_range.start, f"{event.name} sticks out"
            open_.pop()
        inside: Tree = []
        (open_[-1][1] if open_ else roots).append((event.name, inside))
        open_.append((event.time_range.end, inside))
    return roots


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    output = model(torch.ones(2, 4, requires_grad=True))
    with autoprof.span("Loss/VGG"):
        loss = output.abs().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def profiled(model: nn.Module, config: dict[str, Any] = CONFIG) -> Tree:
    """Train two steps with a session, the second under ``torch.profiler``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        step(model, optimizer)
        session.step()
        with profile(activities=[ProfilerActivity.CPU]) as found:
            step(model, optimizer)
        session.step()
        assert not [reason for reason in session.summary().skipped if "range" in reason]
    return tree(found, names_of(model))


def test_the_profiler_shows_our_names_nested_as_the_spans_are() -> None:
    """Forward, the user's span, the backward of each module inside its parent's, the optimizer: in this order."""
    assert profiled(Net()) == [
        ("Net", [("stem", []), ("block", [("block/first", []), ("block/second", [])]), ("head", [])]),
        ("Loss/VGG", []),
        ("(backward)", [
            ("Net [backward]", [
                ("head [backward]", []),
                ("block [backward]", [("block/second [backward]", []), ("block/first [backward]", [])]),
                ("stem [backward]", []),
            ]),
        ]),
        ("Optimizer", []),
    ]  # fmt: skip


def test_the_results_are_the_same_to_the_last_bit() -> None:
    """Outputs, gradients and parameters after some steps are those of the bare model."""
    results = []
    for config in (None, CONFIG):
        torch.manual_seed(3)
        model = Net(checkpointed=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session = None if config is None else autoprof.instrument(model, config, optimizer=optimizer)
        for _ in range(3):
            step(model, optimizer)
            if session is not None:
                session.step()
        if session is not None:
            session.close()
        results.append([parameter.clone() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_compiled_model_is_one_graph_with_the_option_too() -> None:
    """Ranges stay outside the graph: it does not break, and the model is not compiled anew in later steps."""
    torch.compiler.reset()
    model, graphs = Net(), []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autoprof.instrument(model, CONFIG, optimizer=optimizer) as session:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        for _ in range(3):
            step(compiled, optimizer)
            session.step()
    assert len(graphs) == 1


class Listener:
    """Hear ranges open and close; one that is closed out of turn is an error."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.open: list[str] = []

    def __call__(self, name: str) -> Any:
        self.opened[name] += 1
        self.open.append(name)

        def close() -> None:
            assert self.open.pop() == name

        return close


def small_enough(model: nn.Module, x: torch.Tensor) -> bool:
    """Say whether the model trains, in not too many calls; a nest may multiply what it calls."""
    calls = 0

    def count(*_args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 300:
            raise RuntimeError("too large")

    counters = [module.register_forward_pre_hook(count) for module in model.modules()]
    try:
        model(x.clone().requires_grad_()).sum().backward()
    except (RuntimeError, AttributeError, TypeError):
        return False
    finally:
        for counter in counters:
            counter.remove()
    return True


@settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests)
def test_on_any_nest_the_ranges_are_the_spans(description: Any) -> None:
    """Each span that took time is one range, no range is invented, each is closed in turn and none is left open."""
    torch.manual_seed(0)
    model, x = build(description), torch.randn(2, 4)
    assume(small_enough(model, x))
    sink, listener = ListSink(), Listener()
    config = {**CONFIG, "sample": {"warmup": 0}}
    with autoprof.instrument(model, config, sinks=[sink]) as session:
        session._recorder.ranges._open = listener
        for _ in range(2):
            model(x.clone().requires_grad_()).sum().backward()
            session.step()
            assert listener.open == []
    assert not [reason for reason in session.summary().skipped if "range" in reason]
    spans, timed = Counter[str](), Counter[str]()
    for span in (span for frame in sink.frames for span in frame.spans if span.fqn is not None):
        if not span.calls and span.phase is not Phase.RECOMPUTE:  # a later checkpoint of one call has a range, too
            continue
        name = span.phase.qualify(span.name)
        spans[name] += 1
        # A checkpointed function that is no target has a span, but no range.
        timed[name] += span.phase is not Phase.RECOMPUTE and (span.host_ns > 0 or span.phase is not Phase.BACKWARD)
    del listener.opened["(backward)"]
    assert timed <= listener.opened <= spans


class FakeNvtx:
    """NVTX as it is: a stack in each thread."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.depth = threading.local()

    def mark(self, name: str) -> None:
        pass

    def range_push(self, name: str) -> None:
        self.depth.stack = [*getattr(self.depth, "stack", []), name]
        self.said.append(f"+{name}")

    def range_pop(self) -> None:
        self.said.append(f"-{self.depth.stack.pop()}")  # raises where this thread has none open


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> FakeNvtx:
    fake = FakeNvtx()
    monkeypatch.setattr(ranges_module, "nvtx", fake)
    return fake


def test_nsight_gets_the_same_ranges(nvtx: FakeNvtx) -> None:
    """Each range that is pushed is popped, in its thread and in its order."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autoprof.instrument(
        model, {**CONFIG, "targets": [{"match": "0", "name": "A"}], "ranges": "nvtx"}, optimizer=optimizer
    ) as session:
        step(model, optimizer)
        session.step()
    assert nvtx.said == [
        "+A", "-A", "+Loss/VGG", "-Loss/VGG", "+(backward)", "+A [backward]", "-A [backward]", "-(backward)",
        "+Optimizer", "-Optimizer", "+Optimizer/zero_grad", "-Optimizer/zero_grad",
    ]  # fmt: skip


def test_a_torch_without_nvtx_is_an_error_at_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the key and what is allowed; nothing is attached."""

    class Without:
        def mark(self, name: str) -> None:
            raise RuntimeError("NVTX functions not installed")

    monkeypatch.setattr(ranges_module, "nvtx", Without())
    model = Net()
    with pytest.raises(SessionError, match=r"ranges: 'nvtx' needs NVTX, .* not installed.*; allowed: off or profiler"):
        autoprof.instrument(model, {**CONFIG, "ranges": "nvtx"})
    assert all(not is_marked(module) for module in model.modules())


def test_a_failure_of_ours_is_counted_and_ends_the_ranges() -> None:
    """The user's step goes on; the summary says what failed."""

    def broken(name: str) -> Any:
        raise ValueError("no more ranges")

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autoprof.instrument(model, CONFIG, optimizer=optimizer) as session:
        session._recorder.ranges._open = broken
        step(model, optimizer)
        session.step()
        step(model, optimizer)
        session.step()
    skipped = session.summary().skipped
    assert sum(count for reason, count in skipped.items() if "range" in reason) >= 1
    assert session.summary().steps + session.summary().warmup_steps == 2
