"""Every nanosecond is charged to the module whose code, or whose code's backward, took it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, everything
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autoprof import Phase
from autoprof.testing import FakeClock

MODEL_ONLY = everything(targets=[{"match": ".+"}])


class World:
    """The fake clock, and what time was spent on by whom."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.spent: Counter[tuple[str, Phase]] = Counter()

    def spend(self, name: str, phase: Phase, ns: int) -> None:
        """Let time pass in the name of a module."""
        self.clock.advance(ns)
        self.spent[name, phase] += ns


class Work(torch.autograd.Function):
    """An operator whose forward and backward take a known time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, world: World, name: str, ns: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.of = world, name, ns
        inside = torch._C._current_graph_task_id() != -1
        world.spend(name, Phase.RECOMPUTE if inside else Phase.FORWARD, ns)
        return x * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.saved_tensors  # noqa: B018 - this is what makes a checkpoint recompute
        world, name, ns = ctx.of
        world.spend(name, Phase.BACKWARD, 3 * ns)
        return grad, grad.sum().reshape(1), None, None, None


class Part(nn.Module):
    """A module that works in its own name."""

    def __init__(self, world: World, ns: int) -> None:
        super().__init__()
        self.world, self.ns, self.name = world, ns, ""
        self.weight = nn.Parameter(torch.ones(1))

    def work(self, x: Tensor) -> Tensor:
        """Take the module's time once."""
        return Work.apply(x, self.weight, self.world, self.name, self.ns)


class Layer(Part):
    """One operator or several, or none: the input as it is."""

    def __init__(self, world: World, ns: int, times: int) -> None:
        super().__init__(world, ns)
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.work(x)
        return x


class Chain(Part):
    """Layers in a row, with work of its own before, between and after where told."""

    def __init__(
        self, world: World, ns: int, layers: list[nn.Module], own: tuple[bool, bool, bool], times: int
    ) -> None:
        super().__init__(world, ns)
        self.layers, self.own, self.times = nn.ModuleList(layers), own, times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.work(x) if self.own[0] else x
            start = x
            for layer in self.layers:
                x = layer(x)
                x = self.work(x) if self.own[1] else x
            x = self.work(x + start) if self.own[2] else x
        return x


class Fan(Part):
    """Branches from one input to a container."""

    def __init__(self, world: World, ns: int, branches: list[nn.Module], as_dict: bool) -> None:
        super().__init__(world, ns)
        self.branches, self.as_dict = nn.ModuleList(branches), as_dict

    def forward(self, x: Tensor) -> Any:
        values = [self.work(branch(x)) for branch in self.branches]
        return dict(enumerate(values)) if self.as_dict else values


class Sum(Part):
    """Add up a container."""

    def forward(self, values: Any) -> Tensor:
        values = list(values.values()) if isinstance(values, dict) else values
        return self.work(torch.stack(values).sum(0))


class Spread(Part):
    """A fan, summed up; not a pure chain, for the branches' inputs are one tensor."""

    def __init__(self, world: World, ns: int, branches: list[nn.Module], as_dict: bool) -> None:
        super().__init__(world, ns)
        self.fan, self.sum = Fan(world, ns + 1, branches, as_dict), Sum(world, ns + 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(self.fan(x))


class Checkpointed(Part):
    """Run the child twice."""

    def __init__(self, world: World, ns: int, child: nn.Module, reentrant: bool, first: bool) -> None:
        super().__init__(world, ns)
        self.child, self.reentrant, self.first = child, reentrant, first

    def forward(self, x: Tensor) -> Tensor:
        x = self.work(x) if self.first else x
        return self.work(checkpoint(self.child, x, use_reentrant=self.reentrant) * 1.0)


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("chain"), some, st.tuples(st.booleans(), st.booleans(), st.booleans()), st.integers(1, 2)),
        st.tuples(st.just("spread"), some, st.booleans()),
        st.tuples(st.just("checkpoint"), inner, st.booleans(), st.booleans()),
        st.tuples(st.just("again"), st.integers(0, 20)),
    )


works = st.recursive(st.tuples(st.just("layer"), st.integers(0, 2)), _grow, max_leaves=10)


def build(description: Any, world: World, made: list[nn.Module]) -> nn.Module:
    """Make the module of a description, each with a time of its own."""
    kind, *rest = description
    ns = 7 ** (len(made) % 5) * 10 + len(made)
    module: nn.Module
    if kind == "layer":
        module = Layer(world, ns, rest[0])
    elif kind == "chain":
        module = Chain(world, ns, [build(part, world, made) for part in rest[0]], rest[1], rest[2])
    elif kind == "spread":
        module = Spread(world, ns, [build(part, world, made) for part in rest[0]], rest[1])
    elif kind == "checkpoint":
        module = Checkpointed(world, ns, build(rest[0], world, made), rest[1], rest[2])
    elif made:
        return made[rest[0] % len(made)]
    else:
        module = Layer(world, ns, 1)
    made.append(module)
    return module


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@given(description=works, micro_batches=st.integers(1, 3), order=st.permutations(range(3)))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_self_times_are_those_of_the_modules_own_operators(
    description: Any, micro_batches: int, order: list[int]
) -> None:
    """In forward, recompute and backward, on micro-batches in any order, to the nanosecond."""
    world = World()
    model = nn.ModuleDict({"net": build(description, world, [])})
    for fqn, module in model.named_modules():
        if isinstance(module, Part):
            module.name = fqn.replace(".", "/")
    with Watched(model, clock=world.clock, config=MODEL_ONLY) as watched:
        outputs = [model["net"](torch.ones(2, requires_grad=True) * 1.0) for _ in range(micro_batches)]
        for i in order:
            if i < micro_batches:
                outputs[i].sum().backward()
        watched.step()
    (frame,) = watched.frames
    check_laws(frame)
    own = frame.layout.self_ns(frame.total_ns).tolist()
    charged: Counter[tuple[str, Phase]] = Counter()
    for span, ns in zip(frame.spans, own, strict=True):
        charged[span.name, span.phase] += ns
    assert +charged == +world.spent
