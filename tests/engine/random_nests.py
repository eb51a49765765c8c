"""Random nests of modules and random programs that train them, for hypothesis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH = 3


@dataclass
class Box:
    """An output as a dataclass."""

    first: Any
    second: Any
    note: str = "no tensor"


class Scale(nn.Module):
    """One node, one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1,), 0.9))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Pass(nn.Module):
    """Return the input as is."""

    def forward(self, x: Any) -> Any:
        return x


class InPlace(nn.Module):
    """Change the input in place and return it."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(0.5)


class View(nn.Module):
    """Return a view of the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1).transpose(0, 1)


class Detach(nn.Module):
    """Cut the graph."""

    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


class NoGrad(nn.Module):
    """Run the child without a graph."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.child(x.clone())


class Ignore(nn.Module):
    """Compute from a parameter alone, whatever the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * 2


class Constant(nn.Module):
    """Return what needs no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ones(2, WIDTH)


class InnerGrad(nn.Module):
    """Differentiate the child inside forward."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: Tensor) -> Tensor:
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
        from engine_laws import tensors_in

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


class Checkpointed(nn.Module):
    """Recompute the child in backward."""

    def __init__(self, child: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.child = child
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        if not x.requires_grad or not torch.is_grad_enabled():
            return self.child(x)
        return checkpoint(self.child, x, use_reentrant=self.reentrant)


class Leafs(nn.Module):
    """Split the input, run the child on one part, and return views of both."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.unbind(0)
        return torch.stack([self.child(x)[0] + first, second])


def frozen() -> nn.Module:
    """Return a layer whose parameters are frozen."""
    return nn.Linear(WIDTH, WIDTH).requires_grad_(False)


LEAVES = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "scale": Scale,
    "frozen": frozen,
    "relu": nn.ReLU,
    "inplace": InPlace,
    "pass": Pass,
    "view": View,
    "detach": Detach,
    "ignore": Ignore,
    "constant": Constant,
}

leaf = st.sampled_from(sorted(LEAVES)).map(lambda kind: ("leaf", kind))


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("chain"), some, st.booleans(), st.integers(1, 2)),
        st.tuples(st.just("chain"), some, st.booleans(), st.integers(1, 2)),
        st.tuples(
            st.just("branch"),
            st.lists(inner, min_size=2, max_size=3),
            st.sampled_from(["tuple", "list", "dict", "box", "nested"]),
            st.integers(1, 3),
            st.sampled_from(["whole", "star", "keyword"]),
        ),
        st.tuples(st.just("checkpoint"), inner, st.booleans()),
        st.tuples(st.just("checkpoint"), inner, st.booleans()),
        st.tuples(st.just("again"), st.integers(0, 50)),
        st.tuples(st.just("nograd"), inner),
        st.tuples(st.just("innergrad"), inner),
        st.tuples(st.just("leafs"), inner),
    )


nests = st.recursive(leaf, _grow, max_leaves=8)
"""Descriptions of modules; ``again`` stands for a module made before, shared."""


def build(description: Any, made: list[nn.Module] | None = None) -> nn.Module:
    """Make the module of a description."""
    made = [] if made is None else made
    kind, *rest = description
    module: nn.Module
    if kind == "leaf":
        module = LEAVES[rest[0]]()
    elif kind == "chain":
        module = Chain([build(part, made) for part in rest[0]], rest[1], rest[2])
    elif kind == "branch":
        fork = Fork([build(part, made) for part in rest[0]], rest[1])
        module = Branch(fork, Join(rest[2]), rest[3])
    elif kind == "checkpoint":
        module = Checkpointed(build(rest[0], made), rest[1])
    elif kind == "nograd":
        module = NoGrad(build(rest[0], made))
    elif kind == "innergrad":
        module = InnerGrad(build(rest[0], made))
    elif kind == "leafs":
        module = Leafs(build(rest[0], made))
    elif made:
        return made[rest[0] % len(made)]
    else:
        module = nn.Linear(WIDTH, WIDTH)
    made.append(module)
    return module


@dataclass(frozen=True)
class Program:
    """What is done with a model: each entry of ``acts`` is one act of training, in order."""

    acts: tuple[tuple[Any, ...], ...]

    def run(self, model: nn.Module, end_step: Any) -> list[Tensor]:
        """Train, ending a step at every act ``step``; return every output and gradient."""
        losses: list[Tensor] = []
        results: list[Tensor] = []
        torch.manual_seed(1)
        for act, *rest in self.acts:
            if act == "forward":
                x = torch.randn(2, WIDTH, requires_grad=rest[0])
                output = model(x * 1.0 if rest[1] else x)
                results.append(output.detach().clone())
                if output.requires_grad:
                    losses.append(output.pow(2).sum())
            elif act == "step":
                end_step()
            elif losses:
                self._backward(act, losses, rest, [p for p in model.parameters() if p.requires_grad])
        results.extend(p.grad.clone() for p in model.parameters() if p.grad is not None)
        return results

    @staticmethod
    def _backward(act: str, losses: list[Tensor], rest: list[Any], parameters: list[Tensor]) -> None:
        loss = losses.pop(rest[0] % len(losses))
        if act == "backward":
            loss.backward()
        elif act == "twice":
            loss.backward(retain_graph=True)
            loss.backward()
        elif act == "joined":
            sum(losses, loss).backward()
            losses.clear()
        elif act == "several":
            torch.autograd.backward([loss, *losses])
            losses.clear()
        elif act == "double" and parameters:
            grads = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
            norm = sum((g.pow(2).sum() for g in grads if g is not None), loss * 0.5)
            norm.backward()
        elif act == "part" and parameters:
            torch.autograd.grad(loss, parameters[rest[0] % len(parameters)], allow_unused=True)


_forward = st.tuples(st.just("forward"), st.booleans(), st.booleans())
_any_loss = st.integers(0, 5)
_backward = st.tuples(
    st.sampled_from(["backward", "backward", "backward", "twice", "joined", "several", "double", "part"]), _any_loss
)
_step = st.just(("step",))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program that begins with a forward."""
    acts = draw(st.lists(st.one_of(_forward, _backward, _backward, _step), max_size=9))
    return Program((draw(_forward), *acts, ("backward", 0), ("step",)))
