"""What ranks run for the tests of the flight recorder. Importable by name, as spawned processes need it."""

import os
import select
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import autoprof
from autoprof.session import exclusions, training_steps
from autoprof.session.flight import HANG_REPORT, recorder

HANGS_AT = 40
"""The step that never ends."""
LIMIT_S = 600
"""The end of the rank that hangs, should nobody kill it."""
MS, S = 1_000_000, 1_000_000_000


class Middle(nn.Module):
    """A layer that can be made to hang."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.hangs = False

    def forward(self, x: Tensor) -> Tensor:
        if self.hangs:
            hang()
        return self.inner(x)


class Net(nn.Module):
    """Three layers, the middle one of which hangs on one rank."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 8), Middle(), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x)))


def hang() -> None:
    """Read from a pipe to which nobody writes."""
    reader, _ = os.pipe()
    select.select([reader], [], [], LIMIT_S)


class RankTime:
    """The clock of one rank: 10 ms a step, and many seconds more once it hangs, however long either really takes.

    Rank 0 comes to the time at which it reports all ranks when each of them has written its own report.
    """

    def __init__(self, rank: int, world_size: int, folder: Path) -> None:
        self.steps = 0
        self.hangs = False
        self._is_first = rank == 0
        self._world_size, self._folder = world_size, folder

    def __call__(self) -> int:
        return self.steps * 10 * MS + (self._hung_ns() if self.hangs else 0)

    def _hung_ns(self) -> int:
        if not self._is_first:
            return 12 * S
        reported = len(list(self._folder.glob(f"*/rank*/{HANG_REPORT}")))
        return 14 * S if reported == self._world_size else 10 * S


def hang_on(slow: int, rank: int, world_size: int, folder: str) -> None:
    """Train as one rank; in step ``HANGS_AT`` the rank ``slow`` never ends the forward of ``middle``."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    clock = RankTime(rank, world_size, Path(folder))
    recorder.perf_counter_ns = training_steps.perf_counter_ns = exclusions.perf_counter_ns = clock
    model = Net()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    settings: dict[str, Any] = {"output": folder, "sinks": {"jsonl": None}, "flops": "off", "monitor": "off"}
    settings["flight_recorder"] = {"hang_s": 1.0}
    session = autoprof.instrument(ddp, settings, optimizer=optimizer)
    x = torch.randn(4, 8)
    # The last gradient of the pass: the rank does nothing more but wait for the others.
    model.first.weight.register_hook(lambda _: setattr(clock, "hangs", clock.steps == HANGS_AT - 1))
    while True:
        if rank == slow and clock.steps == HANGS_AT - 1:
            clock.hangs = model.middle.hangs = True
        ddp(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.steps += 1
        session.step()
