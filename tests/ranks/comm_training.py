"""What two ranks run for the tests of communication. Importable by name, as spawned processes need it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gloo_ranks import join_group
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh

import autoprof
from autoprof.base.frame import Phase
from autoprof.probes.collectives import WAIT

CONFIG: dict[str, Any] = {
    "targets": [{"match": ".+"}],
    "step": "manual",
    "sample": {"warmup": 0, "budget": None},
    "flops": "off",
    "sinks": {},
}
STEPS = 3
Step = Callable[[Tensor], Tensor]


class Branches(nn.Module):
    """Two layers in a row, and one that no output needs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())  # type: ignore[no-any-return]


def layers() -> nn.Sequential:
    """Return the same model each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def replicate(model: nn.Module, **options: Any) -> nn.parallel.DistributedDataParallel:
    """Wrap a model in DDP, with a bucket for each few parameters."""
    return nn.parallel.DistributedDataParallel(model, **{"bucket_cap_mb": 0.0003} | options)


def branches() -> nn.Module:
    torch.manual_seed(0)
    return replicate(Branches(), find_unused_parameters=True)


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("shard", "one"))["shard"]
    model = layers()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def tensor_parallel() -> nn.Module:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(layers(), mesh, plan)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "ddp": lambda: replicate(layers()),
    "ddp unused": branches,
    "ddp late": lambda: replicate(layers()),
    "fsdp": sharded,
    "tp": tensor_parallel,
}
if torch.__version__ < (2, 6):  # it shards on CUDA only
    del MODELS["fsdp"]


def train(kind: str, rank: int, *, instrumented: bool) -> dict[str, Any]:
    """Train some steps; return the bits of gradients and parameters, and the communication spans."""
    model = MODELS[kind]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = autoprof.instrument(model, CONFIG, optimizer=optimizer) if instrumented else None
    if kind == "ddp late":  # the user's hook comes after the session
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    made: list[Tensor] = []
    for step in range(STEPS):
        seed = 10 * step + (0 if kind == "tp" else rank)
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
        model(x).pow(2).sum().backward()
        for parameter in model.parameters():
            for value in (parameter.grad, parameter):
                local: Any = value.to_local() if hasattr(value, "to_local") else value  # type: ignore[union-attr]
                if local is not None:
                    made.append(local.detach().clone())
        optimizer.step()
        optimizer.zero_grad()
        if session is not None:
            session.step()
    return {"bits": made, **close(session)}


def pipeline(rank: int, *, instrumented: bool) -> dict[str, Any]:
    """Send activations forward and gradients back between two stages; a barrier ends each step."""
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(8, 8))
    session = autoprof.instrument(model, CONFIG) if instrumented else None
    made = []
    for _ in range(STEPS):
        x = torch.ones(4, 8, requires_grad=True)
        if rank == 0:
            output = model(x)
            dist.send(output.detach(), 1)
            gradient = torch.empty(4, 8)
            dist.recv(gradient, 1)
            output.backward(gradient)
        else:
            with torch.no_grad():
                dist.recv(x, 0)
            model(x).sum().backward()
            assert x.grad is not None
            dist.isend(x.grad, 0).wait()  # type: ignore[union-attr]
        dist.barrier()
        made += [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        if session is not None:
            session.step()
    return {"bits": made, **close(session)}


def close(session: Any) -> dict[str, Any]:
    """End a session; return the calls and the bytes of each communication span, and what was skipped."""
    if session is None:
        return {}
    session.close()
    summary = session.summary()
    rows = [row for row in summary.rows if row.phase is Phase.COMM]
    calls, sizes = ({row.name: getattr(row, name) for row in rows} for name in ("calls", "communicated_bytes"))
    return {"calls": calls, "bytes": sizes, "skipped": dict(summary.skipped)}


def rank_main(rank: int, world_size: int, meeting: str, folder: str) -> None:
    """Be one rank."""
    torch.set_num_threads(1)
    join_group(meeting, rank, world_size)
    try:
        found: dict[Any, Any] = {
            (kind, instrumented): train(kind, rank, instrumented=instrumented)
            for kind in MODELS
            for instrumented in (False, True)
        }
        for instrumented in (False, True):
            found["pipeline", instrumented] = pipeline(rank, instrumented=instrumented)
        found["left"] = WAIT.in_place
        torch.save(found, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
