"""Every nanosecond is charged to the module whose code, or whose code's backward, took it."""

from collections import Counter
from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from engine_world import Part, Work, World, own_ns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autoprof import Phase

MODEL_ONLY = everything(targets=[{"match": ".+"}])


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


class Beside(Part):
    """An operator and a child that have the same input: the operator's backward comes after the child's."""

    def __init__(self, world: World, ns: int, child: nn.Module) -> None:
        super().__init__(world, ns)
        self.child = child

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both."""
        return self.work(x) + self.child(x)


class Checkpointed(Part):
    """Run the child twice, with work of its own before and after it where told."""

    def __init__(
        self, world: World, ns: int, child: nn.Module, reentrant: bool, first: bool, own: tuple[bool, bool]
    ) -> None:
        super().__init__(world, ns)
        self.child, self.reentrant, self.first, self.own = child, reentrant, first, own

    def part(self, x: Tensor) -> Tensor:
        """The checkpointed function, which is no module."""
        x = self.work(x) if self.own[0] else x
        x = self.child(x)
        return self.work(x) if self.own[1] else x

    def forward(self, x: Tensor) -> Tensor:
        x = self.work(x) if self.first else x
        function = self.part if any(self.own) else self.child
        return self.work(checkpoint(function, x, use_reentrant=self.reentrant) * 1.0)


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("chain"), some, st.tuples(st.booleans(), st.booleans(), st.booleans()), st.integers(1, 2)),
        st.tuples(st.just("spread"), some, st.booleans()),
        st.tuples(st.just("checkpoint"), inner, st.booleans(), st.booleans(), st.tuples(st.booleans(), st.booleans())),
        st.tuples(st.just("beside"), inner),
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
        module = Checkpointed(world, ns, build(rest[0], world, made), *rest[1:])
    elif kind == "beside":
        module = Beside(world, ns, build(rest[0], world, made))
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
    assert own_ns(watched) == +world.spent


@pytest.mark.parametrize("by", ["tensor", "function"])
def test_the_backward_of_a_loss_outside_the_model_is_backward(by: str) -> None:
    """A criterion beside the model: its nodes run before the first that a module knows of."""
    world = World()
    model, weight = nn.ModuleDict({"net": Layer(world, 10, 1)}), torch.ones(1, requires_grad=True)
    model["net"].name = "net"
    with Watched(model, clock=world.clock, config=MODEL_ONLY) as watched:
        loss = Work.apply(model["net"](torch.ones(2)), weight, world, "(backward)", 100).sum()
        if by == "tensor":
            loss.backward()
        else:
            torch.autograd.backward([loss])
        watched.step()
    assert own_ns(watched) == {
        ("net", Phase.FORWARD): 10,
        ("net", Phase.BACKWARD): 30,
        ("(backward)", Phase.BACKWARD): 300,
    }


def test_a_wrapper_of_somebody_else_around_the_backward_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put on before a session, in one, or left on after it: each is called once, and none calls itself."""
    world, called, original = World(), Counter(), torch.autograd.backward

    def wrap(name: str) -> None:
        inner = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            called[name] += 1
            inner(*args, **kwargs)

        monkeypatch.setattr(torch.autograd, "backward", backward)

    wrap("before")
    model = nn.ModuleDict({"net": Layer(world, 10, 1)})
    for name in ("first", "second"):
        with Watched(model, clock=world.clock, config=MODEL_ONLY) as watched:
            wrap(name)
            model["net"](torch.ones(2)).sum().backward()
            watched.step()
        assert own_ns(watched)["net", Phase.BACKWARD] == 30
        assert sum(span.calls for span in watched.frames[0].spans if span.name == "(backward)") == 1
    assert called == {"before": 2, "first": 2, "second": 1}
    monkeypatch.undo()
    assert torch.autograd.backward is original
