"""Defects of several ranks: communication that nothing overlaps, and a slow rank."""
# mypy: allow-untyped-calls

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
from autoprof._storage.runs import read_run
from autoprof.diagnose import diagnose, evidence_of_run
from autoprof.summary import Summary
from autoprof.testing import FakeClock

from .training import MS, four_layers, train

LATENCY_MS: Final = 30
RANKS: Final = 2


class CompletedWork:
    """The handle of a collective that is complete."""

    def wait(self) -> bool:
        return True


def train_with_unbucketed_gradients(broken: bool) -> Summary:
    """Average each gradient on its own over a link with 30 ms latency; the healthy twin sends one bucket.

    The link is a process group of two ranks on the fake clock. The other rank has the same gradients and answers at
    once. The group is not registered in torch's list of groups.
    """

    class Link(dist.ProcessGroup):
        """A process group of two ranks that takes ``LATENCY_MS`` for each collective."""

        def allreduce(self, tensors: list[Tensor], options: Any = None) -> CompletedWork:  # type: ignore[override]
            clock.advance(LATENCY_MS * MS)
            for tensor in tensors:
                tensor.mul_(self.size())
            return CompletedWork()

    clock = FakeClock()
    link = Link(0, 2)  # type: ignore[call-arg]  # torch's stub knows only the form with a store
    model = four_layers(clock)

    def average() -> None:
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        bucket = torch.cat([gradient.flatten() for gradient in gradients])
        for part in gradients if broken else [bucket]:
            dist.all_reduce(part, group=link)
            part.div_(link.size())
        if not broken:
            sizes = [gradient.numel() for gradient in gradients]
            for gradient, values in zip(gradients, torch.split(bucket, sizes), strict=True):
                gradient.copy_(values.view_as(gradient))

    return train(model, clock, before_update=average)


class Sleeping(nn.Module):
    """A layer that sleeps, so that the other rank has the processor."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.seconds)
        return self.layer(x)  # type: ignore[no-any-return]


class TwoParts(nn.Module):
    """An encoder and a decoder that sleep."""

    def __init__(self, encoder_s: float, decoder_s: float) -> None:
        super().__init__()
        self.encoder, self.decoder = Sleeping(encoder_s), Sleeping(decoder_s)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))  # type: ignore[no-any-return]


def train_rank(rank: int, port: int, folder: str, broken: bool) -> None:
    """Train as one of two ranks; where ``broken``, the last rank takes three times as long for its decoder."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    try:
        torch.manual_seed(0)
        slow = broken and rank == RANKS - 1
        model = nn.parallel.DistributedDataParallel(TwoParts(0.01, 0.03 if slow else 0.01))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        config = {
            "targets": [{"match": "encoder|decoder"}],
            "step": "manual",
            "sample": {"warmup": 5, "budget": None},
            "sinks": {"jsonl": {"flush_s": 0}},
            "output": folder,
        }
        session = autoprof.instrument(model, config, optimizer=optimizer)
        for _ in range(40):
            model(torch.randn(4, 32)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
        dist.barrier()  # in this training only, so that all records are complete
        session.close()
    finally:
        dist.destroy_process_group()


def train_ranks(folder: Path, broken: bool) -> Path:
    """Train on all ranks, a process each; return the run's folder."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    multiprocessing.spawn(train_rank, args=(port, str(folder), broken), nprocs=RANKS)  # type: ignore[attr-defined]
    (run,) = folder.iterdir()
    return run


def train_with_slow_rank(broken: bool) -> Summary:
    """Slow down one of two ranks that train together over gloo; in the healthy twin both are alike.

    The summary is diagnosed from the records of both ranks.
    """
    with tempfile.TemporaryDirectory() as folder:
        return diagnose(evidence_of_run(read_run(train_ranks(Path(folder), broken))))
