"""Train as one rank over gloo, with default settings: ``rank_worker.py FOLDER CASE``, in a launcher's environment.

Cases: ``dead``: rank 1 kills itself after 30 steps, and the ranks do not communicate. ``slow``: rank 1 sleeps 10 ms in
the backward of ``middle``.
"""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo_ranks import SlowBackward
from torch import Tensor, nn

import autoprof
from autoprof._ranks.exchange import Exchange


class Middle(nn.Module):
    """A layer whose backward takes so many seconds longer."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return SlowBackward.apply(self.layer(x), self.seconds)  # type: ignore[no-any-return]


class Model(nn.Module):
    """Three parts in sequence."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(64, 64), Middle(seconds), nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the last part."""
        return self.last(self.middle(self.first(x)))  # type: ignore[no-any-return]


def exchange() -> Exchange:
    """Return the exchange of this rank."""
    (one,) = (found for found in gc.get_objects() if type(found) is Exchange)
    return one


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, on a busy machine for up to a minute."""
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)


def main() -> None:
    """Train 60 steps."""
    folder, case = sys.argv[1:]
    killed = Path(f"{folder}-killed")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = int(os.environ["RANK"])
    model: Any = Model(0.01 if rank == 1 or case == "dead" else 0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dist.init_process_group("gloo")
    session = autoprof.instrument(model, {"output": folder}, optimizer=optimizer)
    if case != "dead":
        model = nn.parallel.DistributedDataParallel(model)
    for step in range(60):
        if case == "dead" and rank == 1 and step == 30:
            wait_until(lambda: exchange().messages > 0)
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.randn(16, 64)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if case == "dead":
        wait_until(killed.exists)
        time.sleep(0.5)  # the other rank is dead by then
    session.close()
    if case == "dead":
        os._exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
