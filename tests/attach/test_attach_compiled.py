"""A request compiles nothing again, also where the optimizer steps in compiled code."""

import os
import subprocess
import sys
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


AFTERWARDS = """
import sys
from pathlib import Path

import torch
from attach_requests import Command
from torch import nn

import autoprof


def train(model, call):
    optimizer = torch.optim.SGD(model.parameters())
    for number in range(16):
        if number in (4, 12) and call is not model:
            call.ask() if number == 4 else call.withdraw()
        (model if call is not model else compiled)(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


for turn in range(2):
    folder = Path(sys.argv[1], str(turn))
    folder.mkdir()
    train(nn.Linear(8, 1), Command(folder))
assert "torch._inductor.compile_fx" not in sys.modules
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
compiled = torch.compile(model)
with autoprof.instrument(model, {"sinks": {}, "targets": [{"match": ".*"}], "sample": {"budget": None}}) as session:
    train(model, model)
print(sorted({row.name for row in session.summary().rows if row.name in ("0", "1")}))
"""


def test_modules_compiled_after_a_detach_have_their_rows(tmp_path: Path) -> None:
    """What has waited for the import of torch's compiler goes with the session, and the next one waits anew."""
    result = subprocess.run(
        [sys.executable, "-c", AFTERWARDS, str(tmp_path)],
        cwd=Path(__file__).parent,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.splitlines()[-1:] == ["['0', '1']"], result.stderr


@pytest.mark.filterwarnings("ignore")  # torch's own, about its compiler
@pytest.mark.parametrize("make", [a_compiled_model, a_compiled_optimizer, a_compiled_step])
def test_a_session_in_the_middle_compiles_nothing(make: Made, tmp_path: Path) -> None:
    """The state at the end has the same bits, and as many graphs were compiled."""
    command = Command(tmp_path)
    assert train(make, command) == train(make, None)
    assert command.states() == ["armed", "recording", "closed"]
    assert not is_armed()
