"""Several ranks in the demo: the processes, their group, and the one that is slow."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import AutoprofError

if TYPE_CHECKING:
    import torch
    from torch import nn

RANKS: Final = 4
"""Ranks that ``--slow-rank`` starts where no launcher has."""
SLOW_MODULE: Final = "stage5"
SLOW_NAME: Final = "VRT/Stage5"
SLOW_S: Final = 0.1
"""The time that the slow rank sleeps in the backward of its slow module, in each step."""


@dataclass(frozen=True, slots=True)
class DemoRanks:
    """The ranks of a demo, and which one is slow; ``rank`` is this process."""

    rank: int = 0
    world_size: int = 1
    slow: int | None = None

    @property
    def shows(self) -> bool:
        """Whether this rank writes for people."""
        return self.rank == 0


def launched_ranks() -> int | None:
    """Return the number of ranks that a launcher such as torchrun has started, None without one."""
    try:
        return int(os.environ["WORLD_SIZE"]) if int(os.environ["RANK"]) >= 0 else None
    except (KeyError, ValueError):
        return None


def check_slow_rank(slow: int | None, world_size: int) -> None:
    """Raise ``AutoprofError`` where no rank has the number of the slow one, or no other rank waits for it."""
    if slow is None or slow < world_size > 1:
        return
    where = f"autoprof demo: --slow-rank {slow}"
    if world_size < 2:
        raise AutoprofError(f"{where}: the launcher started one rank; start two or more, or none: then 4 are started")
    raise AutoprofError(f"{where}: there are {world_size} ranks; allowed: 0 to {world_size - 1}")


def launch(count: int, arguments: Sequence[str]) -> int:
    """Run ``autoprof demo`` with these arguments on several ranks of this machine; return the exit status."""
    threads = max(1, (os.cpu_count() or 1) // count)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}",
        "-m", "autoprof", "demo", *arguments,
    ]  # fmt: skip
    launcher = subprocess.Popen(command, env={"OMP_NUM_THREADS": str(threads), **os.environ})
    while True:
        try:
            return launcher.wait()
        except KeyboardInterrupt:  # the launcher has it too, and ends the ranks
            continue


def own_device(name: str) -> str:
    """Return the device of this rank: of several GPUs of a machine, the one that the launcher intends for it.

    Ranks beyond the number of GPUs share them.
    """
    if name != "cuda":
        return name
    import torch

    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % max(torch.cuda.device_count(), 1)}"


def _backend(device: str) -> str:
    """Return the way to communicate; NCCL refuses two ranks on one GPU."""
    import torch

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return "nccl" if device.startswith("cuda") and local <= torch.cuda.device_count() else "gloo"


@contextmanager
def joined(device: str) -> Iterator[DemoRanks]:
    """Join the process group of the launched ranks, and leave it at the end."""
    import torch.distributed as dist

    dist.init_process_group(_backend(device))
    try:
        yield DemoRanks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def slow_down(model: nn.Module, seconds: float = SLOW_S) -> None:
    """Make the backward of one module take longer, as an imbalanced part of a model does."""
    import torch

    class Sleep(torch.autograd.Function):
        """Return the input; sleep in backward."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            time.sleep(seconds)
            return grads[0]

    def after(module: nn.Module, arguments: Any, output: torch.Tensor) -> torch.Tensor:
        slowed: torch.Tensor = Sleep.apply(output)  # type: ignore[no-untyped-call]
        return slowed

    model.get_submodule(SLOW_MODULE).register_forward_hook(after)
