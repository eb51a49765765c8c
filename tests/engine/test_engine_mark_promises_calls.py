"""Calls and backward passes of every shape are recorded as they happen, and give the bits of the bare model."""

from __future__ import annotations

import contextlib
import threading
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from engine_laws import tree
from mark_promises import ALL, as_bare, backwards, batch, forwards, train_step, two_layers
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


# Repeated, nested, shared.


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_calls_in_every_gradient_mode_are_recorded(mode: Callable[[], Any]) -> None:
    """Beside a training call."""

    def work(model: Any) -> Any:
        with mode():
            output = model(batch()).clone()
        return output.tolist(), train_step(model)

    for frame in as_bare(two_layers, work):
        assert forwards(frame) == dict.fromkeys(ALL, 2)
        assert backwards(frame) == ALL


def test_a_backward_on_another_thread_gives_the_same_gradients() -> None:
    """The forward was on the training thread."""

    def work(model: Any) -> Tensor:
        output: Tensor = model(batch())
        thread = threading.Thread(target=lambda: output.square().sum().backward())
        thread.start()
        thread.join()
        return output

    for frame in as_bare(two_layers, work):
        assert forwards(frame) == ALL
        assert set(backwards(frame)) <= set(ALL)


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


def test_an_exception_that_the_model_catches_ends_its_spans_only() -> None:
    """What the model calls next is beside them, not inside."""

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fails, self.other = Fails(), nn.Linear(3, 3)
            self.fails.error = Failure()

        def forward(self, x: Tensor) -> Tensor:
            with contextlib.suppress(Failure):
                self.fails(x)
            return self.other(x)

    for frame in as_bare(Tries, train_step):
        assert tree(frame, Phase.FORWARD) == [
            "Tries forward", "  fails forward", "    fails/layer forward", "  other forward",
        ]  # fmt: skip
        assert backwards(frame)["other"] == backwards(frame)["Tries"] == 1


# Torch's fused layers.
