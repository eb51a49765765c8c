"""Tokens and time of each expert of a mixture of experts, where the modules show them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from attached import is_marked
from torch import Tensor, nn

import autoprof
from autoprof._reports.summary_text import render_summary
from autoprof.summary import Summary

CONFIG = {"step": "manual", "sample": {"warmup": 1, "budget": None}, "flops": "off", "sinks": {}}
CHOSEN = torch.tensor([[0, 1], [0, 2], [0, 1], [3, 0]])
"""The experts of four tokens, two each: expert 0 takes all of them."""
TOKENS = (4, 2, 1, 1)


class Listed(nn.Module):
    """Experts as modules of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        made = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            tokens = (at == CHOSEN).any(dim=1).nonzero().flatten()
            made = made.index_add(0, tokens, expert(x[tokens]))
        return made


class Holding(nn.Module):
    """A module that holds its tokens itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.autoprof_expert_tokens = [0, 0, 0, 0]

    def forward(self, x: Tensor) -> Tensor:
        self.autoprof_expert_tokens = list(TOKENS)
        return self.layer(x)  # type: ignore[no-any-return]


def train(model: nn.Module, *, instrumented: bool = True) -> tuple[Summary | None, list[Tensor]]:
    """Train four steps; return the summary and all parameters."""
    session = autoprof.instrument(model, CONFIG) if instrumented else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    for _ in range(4):
        model(x).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if session is not None:
            session.step()
    if session is not None:
        session.close()
    return None if session is None else session.summary(), [one.detach().clone() for one in model.parameters()]


@pytest.mark.parametrize(("kind", "name"), [(Listed, "experts"), (Holding, "")])
def test_tokens_are_counted_by_expert(kind: Any, name: str) -> None:
    """Three steps after the warm-up; the bits are those of the bare model, and no hook stays."""
    torch.manual_seed(0)
    model = kind()
    bare = copy.deepcopy(model)
    summary, parameters = train(model)
    assert summary is not None
    (block,) = summary.experts
    assert (block.name, block.steps, block.tokens) == (name, 3, tuple(3 * tokens for tokens in TOKENS))
    assert block.imbalance == 2.0
    for one, other in zip(parameters, train(bare, instrumented=False)[1], strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()
    assert not any(is_marked(module) for module in model.modules())


def test_experts_that_are_modules_have_a_time_each() -> None:
    """Those inside one module have none: absent, not zero."""
    listed, held = train(Listed())[0], train(Holding())[0]
    assert listed is not None
    assert held is not None
    assert listed.experts[0].ns is not None
    assert min(listed.experts[0].ns) > 0
    assert held.experts[0].ns is None


def test_the_report_has_a_row_for_each_expert() -> None:
    """Tokens, time and time per token; equal after a round trip through JSON."""
    summary = train(Listed())[0]
    assert summary is not None
    assert Summary.from_dict(summary.to_dict()) == summary
    lines = render_summary(summary)
    (row,) = [line for line in lines if line.startswith("experts, expert 0")]
    assert "4" in row
    assert "x 2.00" in row
    assert max(map(len, lines)) <= 80


def test_a_copy_of_the_model_is_not_followed() -> None:
    """A copy made inside a recorded step trains with the same result, and without hooks after its first call."""
    model = Listed()
    with autoprof.instrument(model, CONFIG) as session:
        model(torch.randn(4, 8)).sum().backward()
        copied = copy.deepcopy(model)
        copied(torch.randn(4, 8)).sum().backward()
        session.step()
    assert not any(is_marked(one) for one in copied.experts)


def test_a_model_without_experts_has_none() -> None:
    """Nor has a list of another name."""
    summary = train(nn.Sequential(nn.ModuleList([nn.Linear(8, 8)])[0]))[0]
    assert summary is not None
    assert summary.experts == ()
