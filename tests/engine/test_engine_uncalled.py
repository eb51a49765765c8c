"""Modules that are never called are noted; if they run, their time is in the module around them."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autoprof
from autoprof.testing import ListSink

ALL = [{"match": ".*"}]


def notes(model: nn.Module, x: Tensor, call: Callable[[Tensor], Any] | None = None, **config: Any) -> list[str]:
    """Train for some steps; return the notes on modules."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    config = {"sinks": {}, "sample": {"budget": None}, "flops": "off", **config}
    session = autoprof.instrument(model, config, optimizer=optimizer, sinks=[ListSink()])
    for _ in range(8):
        (model if call is None else call)(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    session.close()
    return [note for note in session.summary().notes if note.startswith(("model: ", "no call"))]


class Block(nn.Sequential):
    """A block with a ``forward`` of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x  # type: ignore[no-any-return]


class Layer(nn.Linear):
    """A layer of the program's own class."""


class Pair(nn.Module):
    """Two layers, run as the test says."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b = Block(nn.Linear(2, 2)), Layer(2, 2)
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (lambda model, x: model.b.forward(model.a(x)), "b"),
        (lambda model, x: model.b(model.a.forward(x)), "a"),
        (lambda model, x: model.b(model.a(x)), None),
        (lambda model, x: model.a(x), "b"),
        (lambda model, x: model.a(model.a.forward(x)), "b"),
    ],
)
def test_a_module_without_a_call_is_named(run: Any, name: str | None) -> None:
    """The note says what to do."""
    found = notes(Pair(run), torch.ones(1, 2), targets=ALL)
    assert len(found) == (name is not None)
    for note in found:
        assert note.startswith(f"model: never called in a recorded step: {name}. Their time, if they run, is in")
        assert ".forward() called directly" in note


class Attention(nn.Module):
    """``nn.MultiheadAttention`` reads the weights of its ``out_proj`` without a call."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]  # type: ignore[no-any-return]


class Tied(nn.Module):
    """Embeddings with one weight, as in T5: the calls of one change the weight of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.encoder = nn.Embedding(4, 2), nn.Embedding(4, 2)
        self.encoder.weight = self.shared.weight

    def forward(self, tokens: Tensor) -> Any:
        return self.encoder(tokens)


class OneByOne(nn.Module):
    """A backbone whose layers are called one by one, as in torchvision's SSD: a Sequential does nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.features:
            x = layer(x)
        return x


@pytest.mark.parametrize("config", [{}, {"targets": ALL}])
@pytest.mark.parametrize(
    ("kind", "x"), [(Attention, torch.ones(1, 1, 2)), (Tied, torch.tensor([[1, 2]])), (OneByOne, torch.ones(1, 2))]
)
def test_modules_that_miss_no_time_are_not_named(kind: Any, x: Tensor, config: dict[str, Any]) -> None:
    """Their weights change without a call, and nothing in the program can be changed."""
    assert notes(kind(), x, **config) == []


def test_a_model_of_which_no_module_is_called() -> None:
    """The note says which calls are seen."""
    model = nn.Linear(2, 2)
    (note,) = notes(model, torch.ones(1, 2), model.forward)
    assert note.startswith("no call of the model was recorded")


def test_modules_that_come_during_the_run_are_named() -> None:
    """A block that is appended, and a head that is replaced, each without the modules inside it."""
    model = nn.Sequential(Block(nn.Linear(2, 2)), nn.Linear(2, 2))
    calls = 0

    def run(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            model[1] = nn.Linear(2, 2)
            model.append(Block(nn.Linear(2, 2)))
        return model(x)  # type: ignore[no-any-return]

    assert any(
        note.startswith("model: modules added during the run have no rows: 1, 2. ")
        for note in notes(model, torch.ones(1, 2), run)
    )


class Positional(nn.Linear):
    """A layer whose own call passes one argument on."""

    def __call__(self, x: Tensor) -> Any:
        return super().__call__(x)


def test_a_call_that_passes_arguments_by_position_is_seen_but_on_python_3_11() -> None:
    """CPython 3.11 runs the function that it calls without asking how: there a note names the layer."""
    named = notes(nn.Sequential(Positional(2, 2), nn.Linear(2, 2)), torch.ones(1, 2))
    assert len(named) == (sys.version_info[:2] == (3, 11))
