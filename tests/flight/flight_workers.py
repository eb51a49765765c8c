"""What ranks run for the tests of the flight recorder. Importable by name, as spawned processes need it."""

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import autoprof

HANGS_AT = 40
"""The step that never ends."""


class Middle(nn.Module):
    """A layer that can be made to hang."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.calls = 0
        self.hangs = False

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.hangs and self.calls == HANGS_AT:
            time.sleep(600)
        return self.inner(x)


class Net(nn.Module):
    """Three layers, the middle one of which hangs on one rank."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 8), Middle(), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x)))


def hang_on(slow: int, rank: int, world_size: int, folder: str, config: dict[str, Any]) -> None:
    """Train as one rank; in step ``HANGS_AT`` the rank ``slow`` never ends the forward of ``middle``."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    model = Net()
    model.middle.hangs = rank == slow
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    settings = {"output": folder, "sinks": {"jsonl": None}, "flops": "off", "monitor": "off", **config}
    session = autoprof.instrument(ddp, settings, optimizer=optimizer)
    x = torch.randn(4, 8)
    for _ in range(1000):
        ddp(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.002)
        session.step()
