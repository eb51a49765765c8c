"""Gradient accumulation: the pairs of forward and backward before one optimizer step."""

from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autoprof.reports.summary_text import render_summary


class Net(nn.Module):
    """Two layers, the second one checkpointed if asked."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(2, 2), nn.Linear(2, 1), reentrant

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x)
        if self.reentrant is None:
            return self.second(hidden)
        return checkpoint(self.second, hidden, use_reentrant=self.reentrant)


def accumulate(model: nn.Module, optimizer: Any, rounds: int) -> None:
    """Run so many micro-batches and one optimizer step."""
    for _ in range(rounds):
        model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of the model's."""
    return torch.optim.SGD(model.parameters(), lr=0.01)


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("step", ["auto", "manual"])
def test_micro_steps_are_pairs_of_forward_and_backward(step: str, reentrant: bool | None) -> None:
    """Four in each step; checkpointing adds none. The report has them."""
    model = Net(reentrant)
    optimizer = sgd(model)
    with Watched(model, config=everything(step=step), optimizer=optimizer) as watched:
        for _ in range(3):
            accumulate(model, optimizer, 4)
            if step == "manual":
                watched.step()
    summary = watched.sink.summary
    assert summary is not None
    assert summary.micro_steps == 4
    assert "4 forwards with a backward per optimizer step" in " ".join(" ".join(render_summary(summary)).split())


def test_several_losses_of_one_forward_are_one_micro_step() -> None:
    """Each has a backward pass of its own; two optimizers that step in turn have one each."""
    model = Net()
    optimizers = [sgd(model.first), sgd(model.second)]
    with Watched(model) as watched:
        for _ in range(3):
            output = model(torch.ones(3, 2))
            for loss in (output.sum(), output.mean(), output.square().sum()):
                loss.backward(retain_graph=True)
            for optimizer in optimizers:
                optimizer.step()
            watched.step()
    assert watched.sink.summary is not None
    assert watched.sink.summary.micro_steps == 1


def test_without_a_backward_pass_micro_steps_are_unmeasured() -> None:
    """None, and not zero."""
    model = Net()
    with Watched(model) as watched:
        model(torch.ones(3, 2))
        watched.step()
    assert watched.sink.summary is not None
    assert watched.sink.summary.micro_steps is None
