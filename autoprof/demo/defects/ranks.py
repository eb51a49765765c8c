"""A defect of one rank among several: two processes train together over gloo, and one of them is slower."""
# mypy: allow-untyped-calls
# (torch leaves Tensor.backward without types.)

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor, nn

import autoprof

from ..._storage.runs import read_run
from ...diagnose import diagnose, evidence_of_run
from ...summary import Summary

RANKS: Final = 2
STEPS: Final = 40
CONFIG: Final[dict[str, Any]] = {
    "targets": [{"match": "encoder|decoder"}],
    "step": "manual",
    "sample": {"warmup": 5, "budget": None},
    "sinks": {"jsonl": {"flush_s": 0}},
}


class Part(nn.Module):
    """A layer that takes its time: it sleeps, so that the other rank has the processor."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.seconds)
        return self.layer(x)  # type: ignore[no-any-return]


class Model(nn.Module):
    """Two parts, one after the other."""

    def __init__(self, encoder_s: float, decoder_s: float) -> None:
        super().__init__()
        self.encoder, self.decoder = Part(encoder_s), Part(decoder_s)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))  # type: ignore[no-any-return]


def train_rank(rank: int, port: int, folder: str, broken: bool) -> None:
    """Be one rank; the last one takes three times as long for its decoder where ``broken``."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    try:
        torch.manual_seed(0)
        slow = broken and rank == RANKS - 1
        model = nn.parallel.DistributedDataParallel(Model(0.01, 0.03 if slow else 0.01))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        session = autoprof.instrument(model, {**CONFIG, "output": folder}, optimizer=optimizer)
        for _ in range(STEPS):
            model(torch.randn(4, 32)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
        dist.barrier()  # for this proof only: all records are written now
        session.close()
    finally:
        dist.destroy_process_group()


def launch(folder: Path, broken: bool) -> Path:
    """Train on all ranks; return the run's folder."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    multiprocessing.spawn(train_rank, args=(port, str(folder), broken), nprocs=RANKS)  # type: ignore[attr-defined]
    (run,) = folder.iterdir()
    return run


def slow_rank(broken: bool) -> Summary:
    """One of two ranks is slow; the twin has two alike. Judged from the records of both."""
    with tempfile.TemporaryDirectory() as folder:
        return diagnose(evidence_of_run(read_run(launch(Path(folder), broken))))
