"""What two ranks run for the tests of communication. Importable by name, as spawned processes need it."""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from life_workers import EVERY_MODULE, build, wrap_ddp
from torch import Tensor
from torch.distributed import all_reduce  # bound before any session, as users do

import autoprof
from autoprof.testing import ListSink


def explicit(rank: int, model: Any, x: Tensor) -> None:
    """Average the gradients by hand, once at once and once in the background, and meet at a barrier."""
    model(x).pow(2).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    for gradient in gradients[:2]:
        all_reduce(gradient)
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients[2:]]
    for work in works:
        work.wait()
    dist.barrier()
    dist.broadcast(torch.full((2,), float(rank)), 0)


def replicated(rank: int, ddp: Any, x: Tensor) -> None:
    """Let DDP average, and accumulate one micro-batch before without it."""
    with ddp.no_sync():
        ddp(x).pow(2).sum().backward()
    ddp(x).pow(2).sum().backward()


def train(kind: str, rank: int) -> list[tuple[str, Any]]:
    """Run three steps; return the communication of the last one: its names, and the spans around it."""
    sink = ListSink()
    model = wrap_ddp(build()) if kind == "ddp" else build()
    with autoprof.instrument(model, EVERY_MODULE, sinks=[sink]) as session:
        for step in range(3):
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + rank))
            (replicated if kind == "ddp" else explicit)(rank, model, x)
            session.step()
    frame = sink.frames[-1]
    spans = []
    for span in frame.spans:
        if str(span.phase) == "comm":
            parent = None if span.parent is None else frame.spans[span.parent]
            spans.append((span.name, None if parent is None else (parent.name, str(parent.phase))))
    return spans


def rank_main(rank: int, world_size: int, port: int, folder: str) -> None:
    """Be one rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    try:
        torch.save({kind: train(kind, rank) for kind in ("explicit", "ddp")}, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
