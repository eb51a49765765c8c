"""The training of the launchers' programs: data-parallel, with one rank that is slow in the backward of one module."""

import time
from typing import Any

import torch
from gloo_ranks import SlowBackward
from torch import nn

STEPS = 60
SLOW_RANK = 1
SLOW_S = 0.03


class Middle(nn.Module):
    """A layer, slow in its backward on one rank."""

    def __init__(self, slow: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.slow = slow

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        return SlowBackward.apply(y, lambda: time.sleep(SLOW_S)) if self.slow else y  # type: ignore[no-untyped-call, no-any-return]


class Model(nn.Module):
    """Three layers in sequence."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(64, 64), Middle(rank == SLOW_RANK), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(self.middle(self.first(x).relu()))
        return y


def train(rank: int, *, instrument: bool, wrap: Any = None) -> None:
    """Train on this rank; the process group is ready. ``wrap`` makes the data-parallel model, by default with DDP."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    bare = Model(rank)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.01)
    model = (wrap or nn.parallel.DistributedDataParallel)(bare)
    session = None
    if instrument:
        import autoprof

        session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(STEPS):
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if session is not None:
            session.step()
    if session is not None:
        session.close()
