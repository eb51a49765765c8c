"""Calls of modules that are alike are counted once and multiplied; the figures are those of a count of each call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from flops_models import call_of, counted
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autoprof.base.frame import Phase
from autoprof.probes.metrics.flops import TOO_LONG, count_call
from autoprof.probes.metrics.flops.count import count_once


class Recurrent(nn.Module):
    """A loop over time, of one cell or of as many as there are steps."""

    def __init__(self, steps: int, cells: int = 1) -> None:
        super().__init__()
        self.steps = steps
        self.cells = nn.ModuleList(nn.GRUCell(8, 8) for _ in range(cells))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros(len(x), 8)
        for step in range(self.steps):
            hidden = self.cells[step % len(self.cells)](x, hidden)
        out: Tensor = self.head(hidden)
        return out


class Layer(nn.Module):
    """A layer of a transformer, with or without a checkpoint around half of it."""

    def __init__(self, saves: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.saves = saves

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        out: Tensor = checkpoint(self.mlp, x, use_reentrant=False) if self.saves else self.mlp(x)
        return x + out


class PartlyFrozen(nn.Module):
    """Calls of one layer, of which the first ones have no backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            before = self.layer(x)
        self.layer(x)
        out: Tensor = self.layer(x) + before
        return out


class Penalised(nn.Module):
    """A gradient of a repeated call inside the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        self.layers(x)
        y = self.layers(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y.sum() + gradient.pow(2).sum()


class Growing(nn.Module):
    """A module that does more from its second call on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.layer(x) if self.calls < 2 else self.layer(self.layer(x))
        return out


class Twice(nn.Module):
    """A module that calls another one twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Growing()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(self.inner(x))
        return out


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (Recurrent(12), torch.ones(3, 8)),
        (Recurrent(12, 12), torch.ones(3, 8)),
        (nn.Sequential(*[Layer(saves=False) for _ in range(5)]), torch.ones(2, 6, 8)),
        (nn.Sequential(*[Layer(saves=True) for _ in range(4)]), torch.ones(2, 6, 8)),
        (PartlyFrozen(), torch.ones(2, 4)),
        (Penalised(), torch.ones(2, 4)),
        (Twice(), torch.ones(2, 4)),
    ],
    ids=["cell", "cells", "layers", "checkpoints", "frozen", "penalty", "state"],
)
def test_the_figures_are_those_of_a_count_of_each_call(model: nn.Module, given: Tensor) -> None:
    """By module and phase: operations, bytes, operators and attention."""
    call = call_of(model, given)
    count, (each, _) = count_call(model, call), count_once(model, call, lambda: True, repeats=False)
    assert each.reason is None
    assert count == each


LAYERS = {
    "GRU": nn.GRU(4, 8, batch_first=True),
    "GRU of two layers, both directions": nn.GRU(4, 8, 2, bidirectional=True),
    "RNN": nn.RNN(4, 8),
    "fused LSTM": nn.LSTM(4, 8, 2, batch_first=True, dropout=0.1),
    "LSTM with a projection": nn.LSTM(4, 8, proj_size=3),
}


class Classifier(nn.Module):
    """A recurrent layer whose last output is used, from a start that has a gradient."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.embed, self.layer = nn.Linear(4, 4), layer
        self.head = nn.Linear((layer.proj_size or layer.hidden_size) * (1 + layer.bidirectional), 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(input=self.embed(x))[0][:, -1])
        return out


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_recurrent_layer_has_the_figures_of_each_step(layer: nn.RNNBase) -> None:
    """FLOPs are equal. The first step adds no gradient to that of a step before: one operator in some hundred."""
    call = call_of(Classifier(layer), torch.ones(40, 40, 4))
    count = count_call(Classifier(layer), call)
    each, _ = count_once(Classifier(layer), call, lambda: True, repeats=False)
    assert count.reason is None
    assert count.rows == each.rows
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        part = "layer", phase
        assert count.operators[part] == pytest.approx(each.operators[part], rel=0.01)
        assert count.moved.get(part, 0) == pytest.approx(each.moved.get(part, 0), rel=0.01)


def test_a_recurrent_layer_takes_as_many_operators_whatever_its_length() -> None:
    asked = []

    def operators(steps: int) -> int:
        asked.clear()
        model = Classifier(nn.GRU(4, 8))
        assert count_call(model, call_of(model, torch.ones(steps, 3, 4)), lambda: not asked.append(1)).reason is None
        return len(asked)

    assert operators(400) == operators(4)


@pytest.mark.parametrize("cells", [1, 400])
def test_a_loop_over_400_cells_takes_hardly_more_operators_than_two(cells: int) -> None:
    """Each further call asks nothing: its operators are not run."""
    asked = []

    def operators(steps: int) -> int:
        asked.clear()
        model = Recurrent(steps, min(cells, steps))
        assert count_call(model, call_of(model, torch.ones(3, 8)), lambda: not asked.append(1)).reason is None
        return len(asked)

    assert operators(400) < 1.2 * operators(3)


def test_a_count_that_may_not_go_on_stops_at_the_next_operator() -> None:
    """It says so; nothing is counted a second time."""
    left = iter([True] * 10)
    model = Recurrent(50)
    asked: list[Any] = []

    def goes_on() -> bool:
        asked.append(None)
        return next(left, False)

    count = count_call(model, replace(call_of(model, torch.ones(3, 8))), goes_on)
    assert count.reason == TOO_LONG
    assert len(asked) < 15


def test_a_count_that_is_stopped_in_the_backward_has_the_whole_forward() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Softplus())
    call, asked = call_of(model, torch.ones(3, 8)), list[int]()
    whole = count_call(model, call, lambda: not asked.append(1))
    left = iter([True] * (len(asked) - 1))
    count = count_call(model, call, lambda: next(left, False))
    assert (count.reason, count.flops()) == (TOO_LONG, None)
    for part, number in whole.operators.items():
        assert part[1] is not Phase.FORWARD or count.operators[part] == number


def test_layers_alike_have_rows_of_their_own() -> None:
    """Each under its own name."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])
    count = counted(model, torch.ones(4, 8))
    assert {key.fqn for key in count.rows} == {"0.0", "1.0", "2.0"}
