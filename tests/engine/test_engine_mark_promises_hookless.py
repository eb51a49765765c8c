"""A mark is no hook: code that looks for hooks, copies them or clears them finds the bare model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attached import hooks_of
from mark_promises import (
    ALL,
    as_bare,
    backwards,
    batch,
    count_fused_calls,
    forwards,
    recorded,
    train_step,
    two_layers,
)
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Hooks that programs look at, copy and clear.


def test_a_recorded_model_has_no_hooks() -> None:
    """On no module, of no kind: what asks for hooks before it takes a faster way takes it."""
    model = two_layers()
    with recorded(model) as watched:
        for _ in range(2):
            found = [hooks_of(module) for module in model.modules()]
            assert not any(hooks for one in found for kind, hooks in one.items() if kind != "marks")
            train_step(model)
            watched.step()
    for frame in watched.sink.frames:
        assert forwards(frame) == backwards(frame) == ALL


def test_hooks_that_the_program_clears_leave_the_modules_recorded() -> None:
    """``_forward_hooks.clear()`` and its kin, on every module; nothing is left of them after the session."""

    def work(model: nn.Module) -> Any:
        for module in model.modules():
            module.register_forward_hook(lambda *_: 1 / 0)
            module.register_forward_pre_hook(lambda *_: 1 / 0)
            module._forward_hooks.clear()
            module._forward_pre_hooks.clear()
        return train_step(model)

    for frame in as_bare(two_layers, work):
        assert forwards(frame) == backwards(frame) == ALL


class Trained(nn.Module):
    """A frozen encoder in eval mode, without gradients, under a head that trains."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.trunk = nn.TransformerEncoder(layer, 2).requires_grad_(False)
        self.head = nn.Linear(8, 2)

    def train(self, mode: bool = True) -> Trained:
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.trunk(x)
        return self.head(hidden)


@pytest.mark.filterwarnings("ignore:.*nested tensors")
def test_the_fused_way_of_a_transformer_encoder_stays_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rules on all modules inside it; the encoder is recorded with the layers that it calls."""
    fused_calls = count_fused_calls(monkeypatch)

    def work(model: nn.Module) -> Any:
        fused_calls.clear()
        output = model(torch.linspace(-1, 1, 48).reshape(2, 3, 8))
        output.square().sum().backward()
        return output, list(fused_calls)

    for frame in as_bare(lambda: Trained().train(), work, steps=3):
        assert fused_calls == ["_transformer_encoder_layer_fwd"] * 2
        assert forwards(frame) == {"Trained": 1, "trunk": 1, "trunk/layers/0": 1, "trunk/layers/1": 1, "head": 1}
        assert backwards(frame) == {"Trained": 1, "head": 1}


# Modes of the program.


class ListingFunctions(TorchFunctionMode):
    """Keep the names of torch's functions that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ != "__get__":  # torch shows reads of attributes, too
            self.names.append(func.__qualname__)
        return func(*args, **(kwargs or {}))


def test_the_same_functions_are_called_in_the_same_order() -> None:
    """A mode of the program's sees no function that a session calls."""

    def work(model: nn.Module) -> Any:
        with ListingFunctions() as listing:
            output = model(batch())
        return listing.names, output

    for frame in as_bare(two_layers, work):
        assert forwards(frame) == ALL
