"""Calls and backward passes of every shape are recorded as they happen, and give the bits of the bare model."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from engine_laws import tree
from mark_promises import ALL, as_bare, backwards, batch, forwards, recorded, train_step, two_layers
from torch import Tensor, nn

from autoprof import Phase

# Arguments and outputs.

Point = namedtuple("Point", "x y")


@dataclass
class Holder:
    """A value that torch does not look into."""

    value: Tensor


class Shapes(nn.Module):
    """Call a layer with arguments of every shape, and return them in every shape."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: Tensor) -> Any:
        a = self.layer(x)
        b = self.layer(x=a)
        c = self.layer(b, scale=2.0)
        d = self.layer(scale=2.0, x=c)
        e = self.layer([d])
        f = self.layer({"deep": [(e,)]})
        g = self.layer(Holder(f))
        return self.layer(Point(g, 1.0))


class Layer(nn.Module):
    """A layer that takes and returns tensors in values of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 1.5))

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        if isinstance(x, Tensor):
            return x * self.weight * scale
        if isinstance(x, list):
            return x[0] * self.weight
        if isinstance(x, dict):
            return x["deep"][0][0] * self.weight
        return (x.value if isinstance(x, Holder) else x.x) * self.weight


def test_arguments_of_every_shape_reach_forward() -> None:
    """By position, by keyword, mixed, and inside lists, dicts, tuples and objects; each call is recorded."""
    for frame in as_bare(Shapes, train_step):
        assert forwards(frame) == backwards(frame) == {"Shapes": 1, "layer": 8}


def test_a_wrong_call_raises_the_error_of_the_bare_model() -> None:
    """Missing, unknown and too many arguments: the same message."""

    def work(model: Any) -> list[str]:
        messages = []
        for args, kwargs in (((), {}), ((batch(),), {"unknown": 1}), ((batch(), 1, 2), {}), ((None,), {})):
            with pytest.raises((TypeError, AttributeError)) as error:
                model[0](*args, **kwargs)
            messages.append(str(error.value))
        train_step(model)
        return messages

    for frame in as_bare(two_layers, work):
        assert {name: forwards(frame)[name] for name in ("Sequential", "1", "2")} == {"Sequential": 1, "1": 1, "2": 1}
        assert backwards(frame) == ALL


# Exceptions.


class Failure(Exception):
    """Raised by the model."""


class Fails(nn.Module):
    """A module that raises when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.error: BaseException | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        if self.error is not None:
            raise self.error
        return x


ERRORS = [
    Failure("of the model"), StopIteration(4), MemoryError(), KeyError("key"),
    KeyboardInterrupt(), SystemExit(3), GeneratorExit(),  # torch's own hooks are passed over by these
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
def test_an_exception_leaves_forward_as_it_is(error: BaseException) -> None:
    """The very object without cause and context; spans are closed, and the next call is recorded as always."""

    def work(model: Any) -> Tensor:
        model[1].error = error
        caught: BaseException | None = None
        try:
            model(batch())
        except BaseException as raised:
            caught = raised
        assert caught is error
        assert error.__cause__ is None
        assert error.__context__ is None
        model[1].error = None
        return train_step(model)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 3), Fails(), nn.Linear(3, 3))

    for frame in as_bare(make, work):
        assert forwards(frame) == {"Sequential": 2, "0": 2, "1": 2, "1/layer": 2, "2": 1}
        assert backwards(frame) == {"Sequential": 1, "0": 1, "1": 1, "1/layer": 1, "2": 1}
        depths = {line.strip(): len(line) - len(line.lstrip()) for line in tree(frame, Phase.FORWARD)}
        assert depths == {
            "Sequential forward": 0, "0 forward": 2, "1 forward": 2, "1/layer forward": 4, "2 forward": 2,
        }  # fmt: skip


# Sessions that come and go.


def test_a_graph_made_during_the_session_runs_after_it() -> None:
    """Twice, with the gradients of the bare model."""
    model = two_layers()
    train_step(model)
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    with recorded(model):
        output = model(batch())
    output.square().sum().backward(retain_graph=True)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))
    output.square().sum().backward()


def test_a_session_closed_inside_a_call_lets_the_call_end() -> None:
    """A hook of the program closes it; the outer calls return as always."""
    model = two_layers()
    expected = model(batch())
    with recorded(model) as watched:
        model[1].closing = watched.session.close
        handle = model[1].register_forward_hook(lambda *_: watched.session.close())
        assert torch.equal(model(batch()), expected)
        handle.remove()
        del model[1].closing
        assert torch.equal(model(batch()), expected)
