"""Operators whose forward, recompute and backward take known times on the fake clock, in the name of a module."""

from collections import Counter
from typing import Any

import torch
from engine_laws import Watched, check_laws
from torch import Tensor, nn

from autoprof import Phase
from autoprof.testing import FakeClock


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


def own_ns(watched: Watched) -> Counter[tuple[str, Phase]]:
    """Return the self times of the only frame, by name and phase."""
    (frame,) = watched.frames
    check_laws(frame)
    own = frame.layout.self_ns(frame.total_ns).tolist()
    charged: Counter[tuple[str, Phase]] = Counter()
    for one, ns in zip(frame.spans, own, strict=True):
        charged[one.name, one.phase] += ns
    return +charged
