"""Ranks of tests: processes that train over gloo on this machine, in a time that the test chooses.

The store of a group listens on a port that the system chooses as it is opened, and the others read it from a file: a
port that was free a moment ago may be taken by now.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor, nn
from waiting import wait_until

from autoprof.testing import FakeClock

LIMIT_S = 600
"""The longest that all ranks of a test may take."""


def rank_context() -> Any:
    """Return the context that starts ranks: each forks from a process that has imported torch and nothing of ours."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo"])  # DDP imports the second
    return context


def join_group(meeting: str, rank: int, world_size: int) -> dist.Store:
    """Join the process group of all ranks that name the file ``meeting``, which none has used before."""
    file = dist.FileStore(meeting, world_size)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, world_size, is_master=True, wait_for_workers=False)
        file.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(file.get("port")), world_size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    return store


def spawn_ranks(main: Callable[..., None], world_size: int, *arguments: Any) -> None:
    """Run ``main(rank, world size, meeting, …)`` in a process each; ``meeting`` is the file of ``join_group``."""
    rank_context()
    with tempfile.TemporaryDirectory() as folder:
        given = (world_size, str(Path(folder) / "meeting"), *arguments)
        ranks = multiprocessing.start_processes(
            main, args=given, nprocs=world_size, join=False, start_method="forkserver"
        )
        try:
            wait_until(lambda: ranks.join(timeout=1), "the ranks to end", LIMIT_S)
        finally:
            for process in ranks.processes:
                process.kill()
                process.join()


def train_ranks(main: Callable[..., None], folder: Path, *arguments: Any) -> list[dict[Any, Any]]:
    """Run ``main(rank, world size, meeting, folder, …)`` in two processes; return what each saved as ``<rank>.pt``."""
    spawn_ranks(main, 2, str(folder), *arguments)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


class RankClock(FakeClock):
    """The clock of one of several ranks: a rank that waits for the others comes to their time."""

    def __init__(self, rank: int, world_size: int, store: dist.Store) -> None:
        super().__init__()
        self._rank, self._world_size, self._store = rank, world_size, store
        self._waits = 0

    def wait_for_all(self) -> None:
        """Wait for the other ranks, until the time of the last one."""
        self._waits += 1
        self._store.set(f"{self._waits}/{self._rank}", str(self.now_ns))
        self.now_ns = max(int(self._store.get(f"{self._waits}/{rank}")) for rank in range(self._world_size))

    def wait_in_backward(self, model: nn.Module) -> None:
        """Have backward passes wait for the other ranks where they wait for DDP's communication: at their end."""
        queue_callback: Any = torch.autograd.Variable._execution_engine.queue_callback
        last = next(model.parameters())  # of its gradients; DDP asks for its wait as late
        last.register_hook(lambda _: queue_callback(self.wait_for_all))


class SlowBackward(torch.autograd.Function):
    """The identity; its backward calls ``spend``, which takes time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, spend: Callable[[], object]) -> Tensor:
        ctx.spend = spend
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.spend()
        return grads[0], None
