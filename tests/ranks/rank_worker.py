"""Train as one of two ranks over gloo, in a launcher's environment.

Cases: ``dead``: rank 1 kills itself after 30 steps, and the ranks do not communicate. ``slow``: rank 1 takes 10 ms
longer in the backward of ``middle``.
"""

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo_ranks import RankClock, SlowBackward, join_group
from torch import Tensor, nn
from waiting import LIMIT_S, wait_until

import autoprof
from autoprof.ranks import exchange as exchanging
from autoprof.ranks.exchange import Exchange
from autoprof.testing import open_session

MS = 1_000_000
STEPS = 60


class Middle(nn.Module):
    """A layer whose backward calls ``spend``."""

    def __init__(self, spend: Callable[[], object]) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.spend = spend

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return SlowBackward.apply(self.layer(x), self.spend)  # type: ignore[no-any-return]


class Model(nn.Module):
    """Three parts in sequence."""

    def __init__(self, spend: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(64, 64), Middle(spend), nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the last part."""
        return self.last(self.middle(self.first(x)))  # type: ignore[no-any-return]


def exchange() -> Exchange:
    """Return the exchange of this rank."""
    (one,) = (found for found in gc.get_objects() if type(found) is Exchange)
    return one


def loss_of(model: nn.Module) -> Tensor:
    """Return the loss of a batch."""
    loss: Tensor = model(torch.randn(16, 64)).pow(2).mean()
    return loss


def train_with_slow_rank(rank: int, output: str, store: dist.Store) -> None:
    """Train on both ranks; rank 0 ends when rank 1 has sent its last message."""
    exchanging.CLOSING_S = float(LIMIT_S)  # type: ignore[misc]  # also for a thread that gets no processor for seconds
    clock = RankClock(rank, 2, store)
    model = nn.parallel.DistributedDataParallel(Model(lambda: clock.advance((5 + 10 * rank) * MS)))
    clock.wait_in_backward(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    config = {"output": output, "sample": {"budget": None}, "flops": "off"}  # a busy machine uses a budget up
    session = open_session(model, config, clock=clock, optimizer=optimizer)
    for _ in range(STEPS):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        store.wait(["closed"])
        session.close()
    else:
        sender = exchange()._thread
        session.close()
        wait_until(lambda: not sender.is_alive(), "the last message of rank 1")
        store.set("closed", "")
    dist.destroy_process_group()


def train_with_dead_rank(rank: int, output: str, killed: Path) -> None:
    """Train on each rank alone; rank 0 ends once it has had a message of rank 1, which is dead by then."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    session: Any = autoprof.instrument(model, {"output": output}, optimizer=optimizer)
    for step in range(STEPS):
        if rank == 1 and step == 30:
            wait_until(lambda: exchange().messages > 0, "a message of rank 1")
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    wait_until(killed.exists, "the end of rank 1")
    wait_until(lambda: exchange().states()[0].status != "missing", "a message of rank 1 on rank 0")
    session.close()
    os._exit(0)  # the end of a process group waits for all ranks


def train(rank: int, case: str, output: str, meeting: str) -> None:
    """Train 60 steps."""
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = join_group(meeting, rank, 2)
    if case == "slow":
        train_with_slow_rank(rank, output, store)
    else:
        train_with_dead_rank(rank, output, Path(f"{meeting}-killed"))
