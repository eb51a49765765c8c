"""What other processes of the tests run: loader workers, ranks. Importable by name, as spawned processes need it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from attached import open_sessions
from gloo_ranks import join_group
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import Dataset

import autoprof
from autoprof.base.process import lifecycle
from autoprof.capture import recorder as recording
from autoprof.testing import FakeClock, open_session

EVERY_MODULE: dict[str, Any] = {
    "targets": [{"match": ".*"}],
    "step": "manual",
    "sample": {"warmup": 0, "budget": None},
    "flops": "off",  # with no budget it is counted at once, and the step after a count is excluded
    "sinks": {},
}


@autoprof.timed("Prepare")
def prepare(index: int) -> Tensor:
    """Do what a worker does."""
    return torch.full((4,), float(index))


class Spy(Dataset):
    """Hold the instrumented model, and say what a worker sees of autoprof."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        with autoprof.span("In a worker"), torch.no_grad():
            output = self.model(prepare(index).unsqueeze(0))
        return {
            "input": prepare(index),
            "output": output[0],
            "pid": os.getpid(),
            "recording": recording.active is not None,
            "open": len(open_sessions()),
            "sigterm": signal.getsignal(signal.SIGTERM) is lifecycle._on_sigterm,
        }


def build() -> nn.Module:
    """Return the same model each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))


def wrap_ddp(model: nn.Module) -> nn.Module:
    """Replicate."""
    return nn.parallel.DistributedDataParallel(model)


def wrap_fsdp2(model: Any) -> nn.Module:
    """Shard in place: the classes of the modules change, their hooks grow."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[2], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def wrap_fsdp1(model: nn.Module) -> nn.Module:
    """Shard by wrappers around the whole and around its part."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({nn.Sequential})
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True)


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {"ddp": wrap_ddp, "fsdp2": wrap_fsdp2, "fsdp1": wrap_fsdp1}
if torch.__version__ < (2, 6):  # it shards on CUDA only
    del WRAPPERS["fsdp2"]


def train(wrap: Callable[[nn.Module], nn.Module], when: str) -> dict[str, Any]:
    """Train three steps, instrumented ``before`` or ``after`` wrapping or ``never``; return bits and calls.

    The clock is a fake one: by a real one a pass may come, and take long, on a busy machine; the step after it is in no
    statistic.
    """
    model, session = build(), None
    if when == "before":
        session = open_session(model, EVERY_MODULE, clock=FakeClock())
    wrapped = wrap(model)
    if when == "after":
        session = open_session(wrapped, EVERY_MODULE, clock=FakeClock())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    made: list[Tensor] = []
    for step in range(3):
        drawn = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        output = wrapped(drawn)
        output.pow(2).sum().backward()
        made.append(output.detach().clone())
        for parameter in wrapped.parameters():
            gradient: Any = parameter.grad
            if gradient is not None:
                made.append((gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient).clone())
        optimizer.step()
        optimizer.zero_grad()
        if session is not None:
            session.step()
    calls, skipped = {}, {}
    if session is not None:
        summary = session.summary()
        calls = {(row.name, str(row.phase)): row.calls for row in summary.rows}
        skipped = dict(summary.skipped)
        session.close()
    return {"bits": made, "calls": calls, "skipped": skipped}


def rank_main(rank: int, world_size: int, meeting: str, folder: str, kinds: tuple[str, ...]) -> None:
    """Be one rank: train each kind three ways and save what came of it."""
    torch.set_num_threads(1)
    join_group(meeting, rank, world_size)
    try:
        found = {(kind, when): train(WRAPPERS[kind], when) for kind in kinds for when in ("never", "before", "after")}
        torch.save(found, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
