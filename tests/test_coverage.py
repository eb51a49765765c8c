"""Which modules hooks never see; scripted modules are timed from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import autoprof
from autoprof._targets import find_unseen
from autoprof.testing import ListSink

EVERY = {"targets": [{"match": ".*"}], "sinks": {}, "sample": {"warmup": 0}}
scripting = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Plain(nn.Module):
    """Two layers in a form that TorchScript understands."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


def step(model: nn.Module, x: torch.Tensor | None = None) -> None:
    """Run a step; leave the gradients."""
    output = model(torch.ones(1, 2) if x is None else x)
    if output.requires_grad:
        output.sum().backward()


def unseen(model: nn.Module) -> list[str]:
    """Return the fqns of all modules whose hooks never fire."""
    return find_unseen(model, [*model.modules()])


class TestUnseenModules:
    """What is certain from the model alone."""

    def test_the_inside_of_a_compiled_module_is_hidden(self) -> None:
        """The compiled wrapper itself is not."""
        model = nn.Sequential(torch.compile(Plain(), backend="eager"))
        assert unseen(model) == ["0.a", "0.b"]

    @scripting
    @pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, torch.ones(1, 2))])
    def test_the_inside_of_a_scripted_or_traced_module_is_hidden(self, make: Callable[[nn.Module], Any]) -> None:
        """The module itself is called by Python and is not."""
        assert unseen(nn.Sequential(make(Plain()))) == ["0.a", "0.b"]


@scripting
class TestScriptedModules:
    """``torch.jit`` refuses hooks by the modules' own methods; they are timed from outside all the same."""

    def test_a_scripted_module_inside_a_model_is_timed(self) -> None:
        """Under its name, forward and backward; its inside is named once."""
        model, sink = nn.Sequential(torch.jit.script(Plain()), nn.ReLU()), ListSink()
        with autoprof.instrument(model, EVERY, sinks=[sink]) as session:
            for _ in range(5):
                step(model)
                session.step()
        timed = {(span.fqn, str(span.phase)) for span in sink.frames[-1].spans}
        assert {("0", "forward"), ("0", "backward"), ("1", "forward")} <= timed
        assert sink.summary is not None
        assert sink.summary.notes == ("model: hooks do not fire inside the scripted module '0': 0.a, 0.b",)

    def test_a_scripted_model_computes_the_same_bits(self) -> None:
        """Output and gradients."""
        bare, timed = torch.jit.script(Plain()), torch.jit.script(Plain())
        timed.load_state_dict(bare.state_dict())
        step(bare)
        with autoprof.instrument(timed, EVERY) as session:
            step(timed)
            session.step()
        for one, other in zip(bare.parameters(), timed.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)
