"""Whose compilations are counted, read from what torch's compiler notes itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import autoprof

pytestmark = [  # torch's own, as it compiles
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


class Block(nn.Module):
    """A matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        return out


class Model(nn.Module):
    """Two compiled blocks of one class; the second one has inputs of another shape in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.same, self.changing = Block(), Block()
        for block in (self.same, self.changing):
            block.compile(backend="aot_eager", dynamic=False)

    def forward(self, x: Tensor, rows: int) -> Tensor:
        out: Tensor = self.changing(self.same(x)[:rows])
        return out


def test_of_two_compiled_blocks_the_one_that_is_compiled_again_is_named() -> None:
    torch._dynamo.reset()
    model = Model()
    session = autoprof.instrument(model, {"step": "manual", "sample": {"budget": None, "warmup": 1}, "sinks": {}})
    for step in range(6):
        model(torch.ones(8, 4), step + 2).sum().backward()
        session.step()
    session.close()
    (finding,) = [one for one in session.summary().findings if one.rule == "recompile"]
    (function,) = finding.evidence["functions"]
    assert (function["modules"], function["count"]) == (["changing"], finding.evidence["steps"])
    assert "forward of changing at" in finding.why
    assert "requires_grad" not in finding.why  # of the graph of the other block
    torch._dynamo.reset()
