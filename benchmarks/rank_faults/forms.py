"""The forms of training: how the ranks work together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn

from .training import ROWS, SIZE, Block, Model, Times

Step = Callable[[nn.Module, Tensor, torch.optim.Optimizer], None]
Form = tuple[nn.Module, Iterable[nn.Parameter], Step]


def _step(model: nn.Module, batch: Tensor, optimizer: torch.optim.Optimizer) -> None:
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def ddp(times: Times) -> Form:
    """``DistributedDataParallel``."""
    model = nn.parallel.DistributedDataParallel(Model(times))
    return model, model.parameters(), _step


def accumulation(times: Times) -> Form:
    """DDP with two micro-batches a step, the first under ``no_sync``."""
    model = nn.parallel.DistributedDataParallel(Model(times))

    def step(wrapped: nn.Module, batch: Tensor, optimizer: torch.optim.Optimizer) -> None:
        for last in (False, True):
            with nullcontext() if last else model.no_sync():
                wrapped(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, model.parameters(), step


def fsdp(times: Times) -> Form:
    """FSDP2: ``fully_shard`` of each block and of the model."""
    from torch.distributed.fsdp import fully_shard

    model = Model(times)
    for child in model.children():
        fully_shard(child)
    fully_shard(model)
    return model, model.parameters(), _step


def tensor_parallel(times: Times) -> Form:
    """Tensor parallelism of each block's layer: all ranks work on the same batch."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    from .faults import MODULES, RANKS

    torch.manual_seed(0)
    model = Model(times)
    mesh = init_device_mesh("cpu", (RANKS,))
    plan: Any = {f"{name}.layer": ColwiseParallel(output_layouts=_replicated()) for name in MODULES}
    parallelize_module(model, mesh, plan)
    return model, model.parameters(), _step


def _replicated() -> Any:
    from torch.distributed.tensor import Replicate

    return Replicate()


class Stage(nn.Module):
    """One rank's part of a pipeline."""

    def __init__(self, rank: int, times: Times) -> None:
        super().__init__()
        if not rank:  # without a layer before it the first block's input needs no gradient: it has no backward
            self.embed = nn.Linear(SIZE, SIZE)
        self.add_module(f"layer{rank}", Block(f"layer{rank}", times))

    def forward(self, x: Tensor) -> Tensor:
        """Run the part's blocks."""
        for block in self.children():
            x = block(x)
        return x


def gpipe(times: Times) -> Form:
    """A pipeline of four stages with two micro-batches: each rank has other modules, ``layer<rank>``."""
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    from .faults import RANKS

    rank = dist.get_rank()
    model = Stage(rank, times)
    taken, given = (torch.zeros(ROWS // 2, SIZE, requires_grad=needed) for needed in (rank > 0, True))
    stage = PipelineStage(model, rank, RANKS, torch.device("cpu"), input_args=taken, output_args=given)
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda found, target: (found - target).pow(2).mean())

    def step(_: nn.Module, batch: Tensor, optimizer: torch.optim.Optimizer) -> None:
        if rank == 0:
            schedule.step(batch)
        elif rank == RANKS - 1:
            schedule.step(target=batch, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()

    return model, model.parameters(), step


FORMS: Final[Mapping[str, Callable[[Times], Form]]] = {
    "ddp": ddp,
    "no-sync": accumulation,
    "fsdp2": fsdp,
    "tp": tensor_parallel,
    "gpipe": gpipe,
}
IMPOSSIBLE: Final[Mapping[str, tuple[str, ...]]] = {"tp": ("batches",), "gpipe": ("batches",)}
"""Faults that a form cannot have: where ranks work on the same samples, their batches are equally large."""
STEP_LENGTHS: Final[Mapping[str, float]] = {"no-sync": 2.0, "fsdp2": 4.0, "tp": 2.0}
"""The length of a form's steps, as a multiple of DDP's, on two processors; the delays of faults grow with it."""
