"""A request compiles nothing again, also where the optimizer steps in compiled code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attach_requests import Command, is_armed
from bits import describe
from torch import nn
from torch._dynamo.utils import counters

Made = Callable[[nn.Module, torch.optim.Optimizer], Callable[[], Any]]


def a_compiled_model(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """The model alone is compiled."""
    model.compile(backend="eager")
    return plain(model, optimizer)


def a_compiled_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """The optimizer's step is compiled."""
    return plain(model, optimizer, torch.compile(optimizer.step, backend="eager"))


def a_compiled_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """All of a step is compiled, with breaks of the graph at the backward pass and at the hooks."""
    return torch.compile(plain(model, optimizer), backend="eager")


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, update: Any = None) -> Callable[[], Any]:
    """Return a step of training."""

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        (update or optimizer.step)()

    return step


def train(make: Made, command: Command | None) -> tuple[Any, int]:
    """Train some steps, with a session in the middle; return the state at the end, and the number of graphs."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    step = make(model, optimizer := torch.optim.Adam(model.parameters()))
    for number in range(16):
        if command is not None and number == 4:
            command.ask()
        if command is not None and number == 12:
            command.withdraw()
        step()
    return (describe(model.state_dict()), describe(optimizer.state_dict())), counters["stats"]["unique_graphs"]


@pytest.mark.filterwarnings("ignore")  # torch's own, about its compiler
@pytest.mark.parametrize("make", [a_compiled_model, a_compiled_optimizer, a_compiled_step])
def test_a_session_in_the_middle_compiles_nothing(make: Made, tmp_path: Path) -> None:
    """The state at the end has the same bits, and as many graphs were compiled."""
    command = Command(tmp_path)
    assert train(make, command) == train(make, None)
    assert command.states() == ["armed", "recording", "closed"]
    assert not is_armed()
