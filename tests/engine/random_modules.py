"""The modules that random nests are made of: each does one thing that an account of calls could stumble over."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from bits import tensors_in
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH = 3


@dataclass
class Box:
    """An output as a dataclass."""

    first: Any
    second: Any
    note: str = "no tensor"


class Apply(nn.Module):
    """Apply a function to the input."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Weigh(nn.Module):
    """Apply a function to the input and a parameter."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], *shape: int) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.full(shape, 0.9))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)


class Around(nn.Module):
    """A module around a child."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child


class NoGrad(Around):
    """Run the child without a graph."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.child(x.clone())


class Aside(Around):
    """Use what the child makes as a number only: it is called, and no gradient comes back."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.child(x * 1.0).detach()


class Leafs(Around):
    """Split the input, run the child on one part, and return views of both."""

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.unbind(0)
        return torch.stack([self.child(x)[0] + first, second])


class Checkpointed(Around):
    """Recompute the child in backward."""

    def __init__(self, child: nn.Module, reentrant: bool) -> None:
        super().__init__(child)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        if not x.requires_grad or not torch.is_grad_enabled():
            return self.child(x)
        return checkpoint(self.child, x, use_reentrant=self.reentrant)


class InnerGrad(Around):
    """Differentiate the child inside forward; inside another such forward only call it, or graphs would explode."""

    inside = False

    def forward(self, x: Tensor) -> Tensor:
        if InnerGrad.inside:
            return x + self.child(x * 1.0)
        InnerGrad.inside = True
        try:
            return self._differentiate(x)
        finally:
            InnerGrad.inside = False

    def _differentiate(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            value = self.child(inner * 1.0).sum()
            if not value.requires_grad:
                return x * 2
            (grad,) = torch.autograd.grad(value, inner, create_graph=True, allow_unused=True)
        return x * 2 if grad is None else x + grad


class Chain(nn.Module):
    """Run the children one after another, with or without a residual, several times."""

    def __init__(self, children: list[nn.Module], residual: bool, times: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(children)
        self.residual = residual
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            start = x
            for layer in self.layers:
                x = layer(x)
            if self.residual:
                x = x + start
        return x


class Fork(nn.Module):
    """Return what the children make of one input, in a container."""

    def __init__(self, children: list[nn.Module], container: str) -> None:
        super().__init__()
        self.branches = nn.ModuleList(children)
        self.container = container

    def forward(self, x: Tensor) -> Any:
        values = [branch(x) for branch in self.branches]
        if self.container == "tuple":
            return tuple(values)
        if self.container == "dict":
            return {str(i): value for i, value in enumerate(values)}
        if self.container == "box":
            return Box(values[0], values[1:])
        if self.container == "nested":
            return (values[0], [{"rest": values[1:]}], None, 3)
        return values


class Join(nn.Module):
    """Add up some of the values of a container, given whole, as keywords, or as several arguments."""

    def __init__(self, used: int) -> None:
        super().__init__()
        self.used = used

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        values = list(tensors_in([args, kwargs]))[: self.used]
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total


class Branch(nn.Module):
    """A fork whose container is joined again."""

    def __init__(self, fork: Fork, join: Join, way: str) -> None:
        super().__init__()
        self.fork = fork
        self.join = join
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        value = self.fork(x)
        if self.way == "star" and isinstance(value, (tuple, list)):
            return self.join(*value)
        if self.way == "keyword":
            return self.join(value=value)
        return self.join(value)


class Switch(nn.Module):
    """Run one of the children, by what the input says: the sequence of calls is another from step to step."""

    def __init__(self, children: list[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(children)

    def forward(self, x: Tensor) -> Tensor:
        return self.branches[int(x.detach().sum() > 0) % len(self.branches)](x)


class Recur(nn.Module):
    """Run the child in a loop on a state and the input, the state cut off before the last turn or not."""

    def __init__(self, child: nn.Module, turns: int, cut: bool) -> None:
        super().__init__()
        self.cell = child
        self.turns = turns
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(2, WIDTH)
        for turn in range(self.turns):
            state = self.cell(state.detach() if self.cut and turn else state) * 0.5 + x
        return state


class Couple(Around):
    """Take two inputs, one by position and one by name, and return both, one of them as it is or both anew."""

    def __init__(self, child: nn.Module, anew: bool) -> None:
        super().__init__(child)
        self.anew = anew

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        made = first + self.child(second * 1.0)
        return (made, second * made) if self.anew else (made, second)


class Coupled(nn.Module):
    """Thread two values through a couple twice, checkpointed in one form or the other or not at all."""

    def __init__(self, couple: Couple, form: str) -> None:
        super().__init__()
        self.couple = couple
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        first, second = x * 1.0, x
        for _ in range(2):
            if self.form == "plain" or not x.requires_grad or not torch.is_grad_enabled():
                first, second = self.couple(second, second=first)
            else:
                first, second = checkpoint(self.couple, second, first, use_reentrant=self.form == "reentrant")
        return first + second


class Entry(Around):
    """Take the input in any container, and return what the child makes of it in another, with its own doubled."""

    def __init__(self, child: nn.Module, container: str) -> None:
        super().__init__(child)
        self.container = container

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        value = self.child(next(tensors_in([args, kwargs])))
        if self.container == "tuple":
            return value, value * 2
        if self.container == "same":
            return [value, value]
        if self.container == "dict":
            return {"value": value, "double": value * 2, "note": "no tensor"}
        return Box(value, [value * 2]) if self.container == "box" else value
