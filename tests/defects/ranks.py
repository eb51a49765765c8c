"""Defects of several ranks: communication that nothing overlaps, and a slow rank."""
# mypy: allow-untyped-calls

import tempfile
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from gloo_ranks import RankClock, join_group, spawn_ranks
from torch import Tensor, nn

from autoprof.base.storage.runs import read_run
from autoprof.base.summary import Summary
from autoprof.diagnose import diagnose, evidence_of_run
from autoprof.session import step_recording
from autoprof.testing import FakeClock, open_session

from .training import MS, four_layers, train

LATENCY_MS: Final = 30
RANKS: Final = 2
BEGAN_NS: Final = 1_763_640_000_000 * MS
"""The wall-clock time at which rank 0 begins."""
AHEAD_NS: Final = 3_000 * MS
"""The time by which the wall clock of each rank is ahead of that of the rank before."""


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


class Slow(nn.Module):
    """A layer whose forward takes this long, and its backward as long again."""

    def __init__(self, clock: FakeClock, ms: int) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.clock, self.ms = clock, ms

    def forward(self, x: Tensor) -> Tensor:
        self.clock.advance(self.ms * MS)
        inside = x * 1
        if inside.requires_grad or self.layer.weight.requires_grad:
            inside.requires_grad_()
            inside.register_hook(lambda _: self.clock.advance(self.ms * MS))
        return self.layer(inside)  # type: ignore[no-any-return]


class TwoParts(nn.Module):
    """An encoder and a decoder."""

    def __init__(self, clock: FakeClock, encoder_ms: int, decoder_ms: int) -> None:
        super().__init__()
        self.encoder, self.decoder = Slow(clock, encoder_ms), Slow(clock, decoder_ms)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))  # type: ignore[no-any-return]


def train_rank(rank: int, world_size: int, meeting: str, folder: str, broken: bool) -> None:
    """Train as one of two ranks; where ``broken``, the last rank takes three times as long for its decoder."""
    torch.set_num_threads(1)
    store = join_group(meeting, rank, world_size)
    try:
        clock = RankClock(rank, world_size, store)
        step_recording.time_ns = lambda: BEGAN_NS + rank * AHEAD_NS + clock.now_ns
        torch.manual_seed(0)
        slow = broken and rank == world_size - 1
        model = nn.parallel.DistributedDataParallel(TwoParts(clock, 10, 30 if slow else 10))
        clock.wait_in_backward(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        config = {
            "targets": [{"match": "encoder|decoder"}],
            "step": "manual",
            "sample": {"warmup": 5, "budget": None},
            "flops": "off",
            "sinks": {"jsonl": {"flush_s": 0}},
            "output": folder,
        }
        session = open_session(model, config, clock=clock, optimizer=optimizer)
        for _ in range(40):
            model(torch.randn(4, 32)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
        if rank == 0:  # it compares the records of all, which are complete by then
            store.wait([f"closed/{other}" for other in range(1, world_size)])
        session.close()
        store.set(f"closed/{rank}", "")
    finally:
        dist.destroy_process_group()


def train_ranks(folder: Path, broken: bool) -> Path:
    """Train on all ranks, a process each; return the run's folder."""
    spawn_ranks(train_rank, RANKS, str(folder), broken)
    (run,) = folder.iterdir()
    return run


def train_with_slow_rank(broken: bool) -> Summary:
    """Slow down one of two ranks that train together over gloo; in the healthy twin both are alike.

    The summary is diagnosed from the records of both ranks.
    """
    with tempfile.TemporaryDirectory() as folder:
        return diagnose(evidence_of_run(read_run(train_ranks(Path(folder), broken))))
