"""What two ranks run for the tests of communication. Importable by name, as spawned processes need it."""

from __future__ import annotations

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


def explicit(rank: int, model: Any, x: Tensor) -> list[Tensor]:
    """Average the gradients by hand, once at once and once in the background, and meet at a barrier."""
    model(x).pow(2).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    for gradient in gradients[:2]:
        all_reduce(gradient)
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients[2:]]
    for work in works:
        work.wait()
    dist.barrier()
    shared = torch.full((2,), float(rank))
    dist.broadcast(shared, 0)
    return [*(gradient.clone() for gradient in gradients), shared]


def replicated(rank: int, ddp: Any, x: Tensor) -> list[Tensor]:
    """Let DDP average, and accumulate one micro-batch before without it."""
    with ddp.no_sync():
        ddp(x).pow(2).sum().backward()
    ddp(x).pow(2).sum().backward()
    return [parameter.grad.clone() for parameter in ddp.parameters()]


def train(kind: str, rank: int, when: str) -> dict[str, Any]:
    """Run three steps; return bits and what was seen of communication in the last one."""
    model, session, sink = build(), None, ListSink()
    if when == "before":
        session = autoprof.instrument(model, EVERY_MODULE, sinks=[sink])
    wrapped = wrap_ddp(model) if kind == "ddp" else model
    if when == "after":
        session = autoprof.instrument(wrapped, EVERY_MODULE, sinks=[sink])
    made: list[Tensor] = []
    for step in range(3):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        made += (replicated if kind == "ddp" else explicit)(rank, wrapped, x)
        if session is not None:
            session.step()
    spans: list[Any] = []
    skipped: dict[str, int] = {}
    adds_up = True
    if session is not None:
        session.close()
        frame = sink.frames[-1]
        for span in frame.spans:
            if str(span.phase) == "comm":
                parent = None if span.parent is None else frame.spans[span.parent]
                spans.append((span.name, None if parent is None else (parent.name, str(parent.phase)), span.host_ns))
        adds_up = sum(frame.phase_ns().values()) == frame.step_ns and min(frame.phase_ns().values()) >= 0
        assert sink.summary is not None
        skipped = dict(sink.summary.skipped)
    return {"bits": made, "spans": spans, "skipped": skipped, "adds_up": adds_up}


def rank_main(rank: int, world_size: int, port: int, folder: str) -> None:
    """Be one rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    plain = dist.all_reduce.__closure__[0].cell_contents, torch._C._distributed_c10d.Work.wait
    try:
        found: dict[Any, Any] = {
            (kind, when): train(kind, rank, when)
            for kind in ("explicit", "ddp")
            for when in ("never", "before", "after")
        }
        now = dist.all_reduce.__closure__[0].cell_contents, torch._C._distributed_c10d.Work.wait
        found["left"] = now != plain
        torch.save(found, Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
