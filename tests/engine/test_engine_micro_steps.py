"""Gradient accumulation: the rounds of forward and backward inside one optimizer step are counted, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autoprof._reports.summary_text import render_summary
from autoprof._stats import Aggregate
from autoprof._storage.steps_jsonl import FrameDecoder, FrameEncoder


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
def test_micro_steps_are_counted_inside_one_optimizer_step(step: str, reentrant: bool | None) -> None:
    """Four rounds, then one, then four again; checkpointing adds no round, nor does a backward inside a backward."""
    model = Net(reentrant)
    optimizer = sgd(model)
    with Watched(model, config=everything(step=step), optimizer=optimizer) as watched:
        for rounds in (4, 1, 4):
            accumulate(model, optimizer, rounds)
            if step == "manual":
                watched.step()
    assert [frame.micro_steps for frame in watched.sink.frames] == [4, 1, 4]
    assert watched.sink.summary is not None
    assert watched.sink.summary.micro_steps == 4


def test_micro_steps_are_in_the_records_and_in_the_report() -> None:
    """``steps.jsonl`` has the count at its top level and gives it back; the report has one line where it is above 1."""
    model = Net()
    with Watched(model) as watched:
        accumulate(model, sgd(model), 2)
        watched.step()
        frame = watched.frames[0]
        report = render_summary(watched.session.summary())
    line = FrameEncoder().encode(frame)
    assert '"micro_steps":2' in line
    assert FrameDecoder().decode(line).micro_steps == 2
    assert "2 micro-batches per optimizer step" in " ".join(" ".join(report).split())
    aggregate = Aggregate()
    aggregate.add(FrameDecoder().decode(line))
    assert aggregate.summary().micro_steps == 2
