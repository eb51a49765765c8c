"""Recomputation by ``torch.utils.checkpoint`` is a span of its own, whatever function is checkpointed and however."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, count, everything, tree
from engine_world import Part, World, own_ns
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autoprof import Phase

Run = Callable[..., Any]
ROOT_ONLY = everything(targets=[{"match": "", "name": "Net"}])
BLOCKS_ONLY = everything(targets=[{"match": r"layers\.\d+", "name": "Layers"}])
FORMS = pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])


class Layer(Part):
    """Work of 10 ns; its backward takes 30."""

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.work(x) * scale


class Net(Part):
    """A root that checkpoints what it is asked to."""

    def __init__(self, world: World, run: Run, layers: int = 1) -> None:
        super().__init__(world, 0)
        self.layers = nn.ModuleList(Layer(world, 10) for _ in range(layers))
        self.run = run
        for layer in self.layers:
            layer.name = self.name = "Net"

    def both(self, x: Tensor) -> Tensor:
        """A function that is no module."""
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def checkpointed(choose: Callable[[Net], Any], reentrant: bool) -> Run:
    """Return a forward that checkpoints the function chosen."""
    return lambda net, x: checkpoint(choose(net), x, use_reentrant=reentrant)


FORWARD, RECOMPUTE, BACKWARD = Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD


def train(net: nn.Module, world: World, config: Any = ROOT_ONLY, **more: Any) -> Watched:
    """Record one step."""
    with Watched(net, clock=world.clock, config=config, **more) as watched:
        net(torch.ones(2, requires_grad=True) * 1.0).sum().backward()
        watched.step()
    return watched


@FORMS
def test_a_checkpoint_that_no_target_contains_has_a_span_of_its_own(reentrant: bool) -> None:
    """Targets called inside it keep their spans, and no nanosecond is counted twice."""
    world = World()
    net = Net(world, checkpointed(lambda net: net.both, reentrant), layers=2)
    for layer in net.layers:
        layer.name = "Layers"

    def run(net: Net, x: Tensor) -> Tensor:
        world.clock.advance(5)
        return net.both(x)

    net.run = lambda net, x: checkpoint(run, net, x, use_reentrant=reentrant)
    watched = train(net, world, BLOCKS_ONLY)
    (frame,) = watched.frames
    assert own_ns(watched) == {**world.spent, ("(recompute)", RECOMPUTE): 5}
    assert count(frame, RECOMPUTE) == {"Layers": 2, "(recompute)": 1}
    assert tree(frame, RECOMPUTE) == ["(recompute) recompute", "  Layers recompute", "  Layers recompute"]
    assert watched.session.summary().phases[RECOMPUTE] == 25


@FORMS
def test_a_checkpoint_in_the_loop_is_a_span_of_its_own(reentrant: bool) -> None:
    """The loop checkpoints a loss of its own: no target contains it."""
    world = World()
    net, head = Net(world, lambda net, x: net.both(x)), Layer(world, 7)
    head.name = "(recompute)"
    with Watched(net, clock=world.clock, config=ROOT_ONLY) as watched:
        output = net(torch.ones(2, requires_grad=True) * 1.0)
        checkpoint(head, output, use_reentrant=reentrant).sum().backward()
        watched.step()
    assert own_ns(watched)["(recompute)", RECOMPUTE] == 7
    assert own_ns(watched)["(backward)", BACKWARD] == 21


def test_a_gradient_by_autograd_grad_has_its_recompute() -> None:
    """No call of ``torch.autograd.backward`` is there to begin the pass."""
    world = World()
    net = Net(world, checkpointed(lambda net: net.both, False))
    with Watched(net, clock=world.clock, config=ROOT_ONLY) as watched:
        torch.autograd.grad(
            net(torch.ones(2, requires_grad=True) * 1.0).sum(), list(net.parameters()), allow_unused=True
        )
        watched.step()
    assert own_ns(watched) == {("Net", FORWARD): 10, ("Net", RECOMPUTE): 10, ("Net", BACKWARD): 30}


def test_without_the_phase_recompute_it_is_part_of_backward() -> None:
    """The configuration decides."""
    world = World()
    config = everything(targets=[{"match": "", "name": "Net", "phases": ["forward", "backward"]}])
    watched = train(Net(world, checkpointed(lambda net: net.both, False)), world, config)
    assert own_ns(watched) == {("Net", FORWARD): 10, ("Net", BACKWARD): 40}


class Boom(Exception):
    """An error of the user's."""


@FORMS
def test_an_exception_in_a_recompute_leaves_unchanged_and_ends_its_span(reentrant: bool) -> None:
    """The same object reaches the user, and the next step is whole."""
    world, boom, failing = World(), Boom("x"), [True]

    def part(net: Net, x: Tensor) -> Tensor:
        if failing[0] and torch._C._current_graph_task_id() != -1:
            raise boom
        return net.both(x)

    net = Net(world, lambda net, x: checkpoint(part, net, x, use_reentrant=reentrant))
    with Watched(net, clock=world.clock, config=ROOT_ONLY) as watched:
        with pytest.raises(Boom) as caught:
            net(torch.ones(2, requires_grad=True) * 1.0).sum().backward()
        assert caught.value is boom
        world.clock.advance(1000)
        watched.step()
        failing[0] = False
        net(torch.ones(2, requires_grad=True) * 1.0).sum().backward()
        watched.step()
        assert not watched.session.summary().skipped
    first, second = watched.frames
    check_laws(first)
    assert first.phase_ns()[RECOMPUTE] == 0
    assert first.phase_ns()[Phase.OTHER] == 1000
    assert second.phase_ns()[RECOMPUTE] == 10
