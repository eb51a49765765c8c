"""Random programs that train a model, for hypothesis: forwards, losses, backward passes and steps in any order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from bits import tensors_in
from hypothesis import strategies as st
from random_modules import WIDTH, Box, Entry
from torch import Tensor, nn

import autoprof


class Life:
    """What a program does beside training. Alone it does nothing: the program runs without autoprof."""

    def end_step(self) -> None:
        """End the step."""

    def pause(self) -> AbstractContextManager[Any]:
        """Charge what happens inside to no step."""
        return nullcontext()


@dataclass(eq=False)
class Loss:
    """A loss whose backward has not run, the input it came from, and the losses that share its graph."""

    value: Tensor
    source: Tensor
    beside: list[Loss]


@dataclass
class State:
    """A program in the middle of its run."""

    model: nn.Module
    life: Life
    losses: list[Loss] = field(default_factory=list)
    results: list[Tensor] = field(default_factory=list)
    source: Tensor | None = None

    @property
    def parameters(self) -> list[Tensor]:
        """Return what is trained."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad and parameter.is_leaf]

    def call(self, source: Tensor, way: str) -> Any:
        """Call the model, the input given in one way or another where it takes them all."""
        if not isinstance(self.model, Entry):
            return self.model(source)
        if way == "keyword":
            return self.model(value=source)
        containers = {"tuple": (0, source), "dict": {"input": [source]}, "box": Box(source, None)}
        return self.model(containers.get(way, source))

    def take(self, loss: Loss) -> bool:
        """Remove a loss from those that wait; tell whether others still need its graph."""
        self.losses.remove(loss)
        loss.beside.remove(loss)
        return bool(loss.beside)


# Acts that need nothing.


def _forward(state: State, leaf: bool, scaled: bool, way: str, losses: int) -> None:
    """Run the model on a new input; every tensor it returns gets a loss, up to so many, which share one graph."""
    state.source = torch.randn(2, WIDTH, requires_grad=leaf)
    _forward_on(state, state.source * 1.0 if scaled else state.source, way, losses)


def _forward_again(state: State, way: str, losses: int) -> None:
    """Run the model on the tensor that it had last: two graphs that meet in one input."""
    if state.source is not None:
        _forward_on(state, state.source, way, losses)


def _forward_on(state: State, source: Tensor, way: str, losses: int) -> None:
    outputs = list(tensors_in(state.call(source, way)))
    state.results += [output.detach().clone() for output in outputs]
    beside: list[Loss] = []
    beside += [Loss(out.pow(2).sum(), source, beside) for out in outputs[:losses] if out.requires_grad]
    state.losses += beside


def _validate(state: State, graph: bool) -> None:
    """Run the model where no step is charged for it."""
    with state.life.pause(), torch.set_grad_enabled(graph):
        state.results += [out.detach().clone() for out in tensors_in(state.call(torch.ones(2, WIDTH), "plain"))]


def _step(state: State) -> None:
    state.life.end_step()


def _optimize(state: State) -> None:
    """Update the parameters, unless a graph that still needs them would notice."""
    if not state.losses and state.parameters:
        optimizer = torch.optim.SGD(state.parameters, lr=0.01)
        optimizer.step()
        optimizer.zero_grad()


def _spend(state: State) -> None:
    """Have a span of one's own around a forward, with another inside."""
    with autoprof.span("own"):
        _forward(state, True, True, "plain", 1)
        with autoprof.span("own"):
            autoprof.log_timing("elsewhere", 1.5)


# Acts that need a loss.


def _backward(state: State, loss: Loss) -> None:
    loss.value.backward(retain_graph=state.take(loss))


def _retain(state: State, loss: Loss) -> None:
    """Keep graph and loss: another pass comes later, perhaps in another step."""
    loss.value.backward(retain_graph=True)


def _twice(state: State, loss: Loss) -> None:
    keep = state.take(loss)
    loss.value.backward(retain_graph=True)
    loss.value.backward(retain_graph=keep)


def _joined(state: State, loss: Loss) -> None:
    """Add all losses up and run one pass."""
    sum((other.value for other in state.losses if other is not loss), loss.value).backward()
    state.losses.clear()


def _several(state: State, loss: Loss) -> None:
    """Run one pass from all losses."""
    torch.autograd.backward([other.value for other in state.losses])
    state.losses.clear()


def _double(state: State, loss: Loss) -> None:
    """Penalise the norm of the parameters' gradient."""
    if state.parameters:
        _penalise(state, loss, state.parameters)


def _double_input(state: State, loss: Loss) -> None:
    """Penalise the norm of the input's gradient."""
    if loss.source.requires_grad:
        _penalise(state, loss, [loss.source])


def _penalise(state: State, loss: Loss, wanted: list[Tensor]) -> None:
    keep = state.take(loss)
    grads = torch.autograd.grad(loss.value, wanted, create_graph=True, allow_unused=True)
    norm = sum((grad.pow(2).sum() for grad in grads if grad is not None), loss.value * 0.5)
    norm.backward(retain_graph=keep)


def _part(state: State, loss: Loss) -> None:
    """Ask for one parameter's gradient only: the pass runs through a part of the graph."""
    if state.parameters:
        keep = state.take(loss)
        torch.autograd.grad(loss.value, state.parameters[0], allow_unused=True, retain_graph=keep)


def _elsewhere(state: State, loss: Loss) -> None:
    """Run the pass on another thread while this one waits, as the backward of a device does."""
    keep = state.take(loss)
    errors: list[Exception] = []

    def work() -> None:
        try:
            loss.value.backward(retain_graph=keep)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


_ALWAYS: dict[str, Callable[..., None]] = {
    "forward": _forward,
    "again": _forward_again,
    "validate": _validate,
    "step": _step,
    "optimize": _optimize,
    "spend": _spend,
}
_WITH_LOSS: dict[str, Callable[[State, Loss], None]] = {
    "backward": _backward,
    "retain": _retain,
    "twice": _twice,
    "joined": _joined,
    "several": _several,
    "double": _double,
    "doubleinput": _double_input,
    "part": _part,
    "elsewhere": _elsewhere,
}


@dataclass(frozen=True)
class Program:
    """What is done with a model: each entry of ``acts`` is one act of training, in order."""

    acts: tuple[tuple[Any, ...], ...]

    def run(self, model: nn.Module, life: Life) -> list[Tensor]:
        """Train; return every output and gradient."""
        state = State(model, life)
        torch.manual_seed(1)
        for act, *rest in self.acts:
            if act in _ALWAYS:
                _ALWAYS[act](state, *rest)
            elif state.losses:
                _WITH_LOSS[act](state, state.losses[rest[0] % len(state.losses)])
        # Reentrant checkpointing of a module that returns a parameter makes that no leaf any more.
        state.results += [p.grad.clone() for p in model.parameters() if p.is_leaf and p.grad is not None]
        return state.results


_way = st.sampled_from(["plain", "tuple", "dict", "box", "keyword"])
_losses = st.integers(1, 2)
_new = st.tuples(st.just("forward"), st.booleans(), st.booleans(), _way, _losses)
_pass = st.tuples(st.sampled_from(["backward", "backward", *_WITH_LOSS]), st.integers(0, 5))
_beside = st.one_of(
    st.tuples(st.just("again"), _way, _losses),
    st.tuples(st.just("validate"), st.booleans()),
    st.just(("optimize",)),
    st.just(("spend",)),
)
_end = st.just(("step",))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program that begins with a forward and ends with a backward pass and a step."""
    acts = draw(st.lists(st.one_of(_new, _pass, _pass, _pass, _beside, _end), max_size=10))
    return Program((draw(_new), *acts, ("backward", 0), ("step",)))
