"""Causes that come back every few steps, and memory that grows: the sum over the run is judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import autoprof

from ..clock import CLOCK
from ..judge import Judge
from ..parts import Chain, ClockedSGD, Root, Sleep, batches, rest, sgd, train, train_step
from ..registry import program


def shards(count: int, every: int, ms: float) -> Iterator[Tensor]:
    """Make batches; one of so many opens a shard, which takes a known time."""
    for number, batch in enumerate(batches(count)):
        if number % every == 0:
            rest(ms)
        yield batch


@program("findings", "a shard opened every eighth batch, 120 ms: data-wait with its rhythm, seven waits are short")
def shard_every_eighth_batch() -> Judge:
    model = Chain(Sleep(10, 15, "block"))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in session.loader(shards(160, 8, 120)):
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    return Judge(session).steps().verdict("data-wait", r"8")


@program("findings", "a shard of a DataLoader opened every tenth batch, 150 ms")
def shard_of_a_data_loader() -> Judge:
    class Shards(torch.utils.data.IterableDataset[Tensor]):
        """Samples of 20 batches of 8 a shard."""

        def __iter__(self) -> Iterator[Tensor]:
            for number in range(8 * 150):
                if number % 80 == 0:
                    rest(150)
                yield torch.zeros(16)

    model = Chain(Sleep(10, 15, "block"))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in torch.utils.data.DataLoader(Shards(), batch_size=8):
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    return Judge(session).steps().verdict("data-wait", r"10")


class TwoTasks(Root):
    """A model with a second head that only every third step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.quick, self.slow = Sleep(8, 12, "body"), Sleep(2, 2, "quick"), Sleep(30, 40, "slow")
        self.number = 0

    def forward(self, x: Tensor) -> Any:
        self.number += 1
        return (self.slow if self.number % 3 == 0 else self.quick)(self.body(x))


@program("findings", "a slow task each third step: its module is named, with its share of the run")
def slow_task_each_third_step() -> Judge:
    model = TwoTasks()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    train(model, optimizer, 120)
    session.close()
    return Judge(session).steps().verdict("hot-module", r"slow", also=("backward-ratio",))


class RareSGD(ClockedSGD):
    """An optimizer that recomputes its preconditioner every tenth step."""

    calls = 0

    def step(self, closure: Any = None) -> Any:
        self.calls += 1
        if self.calls % 10 == 0:
            with CLOCK.phase("optimizer"):
                rest(150)
        return super().step(closure)


@program("findings", "an optimizer that takes 150 ms every tenth step, as one with a preconditioner does")
def rare_preconditioner() -> Judge:
    model = Chain(Sleep(10, 15, "block"))
    optimizer = RareSGD(model.parameters())
    session = autoprof.instrument(model, optimizer=optimizer)
    train(model, optimizer, 220)
    session.close()
    return Judge(session).steps().verdict("optimizer", r"10")


@program("defects", "a running loss keeps every graph: 100 steps, and the line that keeps them is named")
def graphs_kept_by_a_running_loss() -> Judge:
    model = nn.Sequential(nn.Linear(16, 2048), nn.ReLU(), nn.Linear(2048, 16))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    running: Any = 0.0
    CLOCK.start()
    for batch in batches(100, 256, 16):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        running = running + model(batch).square().mean()
        CLOCK.step()
    session.close()
    return Judge(session).finds("memory-growth", r"rhythm\.py|running")
