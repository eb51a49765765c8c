"""One training on one rank, with its fault: real modules, a real loader and optimizer, a step of about 45 ms.

Modules sleep, as a device that computes leaves the processor: four ranks share two cores. Each rank draws noise for
each module and step, so that healthy ranks differ from step to step.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import autoprof

from .faults import MODULES, Fault, Run

SIZE: Final = 32
ROWS: Final = 8
"""Samples of a usual batch."""
FORWARD_S: Final = 0.003
BACKWARD_S: Final = 0.006
LOADER_S: Final = 0.003
OPTIMIZER_S: Final = 0.003
SPREAD: Final = 0.1
"""The spread of each module's time from step to step, as a part of it."""
PAUSED_WITHIN_S: Final = 0.04
"""The time after the end of a step within which a pause begins; …"""
GOLDEN: Final = 0.618
"""… its multiples are spread over that time."""
OBJECT_S: Final = 80e-9
"""The time to look at one object in a collection, …"""
MAX_OBJECTS: Final = 8_000_000
"""… and the most objects of the rank that collects garbage."""


class Times:
    """The time that each part of a step takes on this rank: usual time, noise, and the fault."""

    def __init__(self, run: Run, rank: int) -> None:
        self._draw = random.Random(f"{run.seed}/{rank}")
        self._fault = run.fault if run.fault is not None and run.fault.rank == rank else None
        self.step = 1
        """The step that runs, from 1."""

    def fault(self, kind: str, module: str | None = None) -> Fault | None:
        """Return the fault of this rank, if it is of this kind and place and in this step."""
        one = self._fault
        return one if one and one.kind == kind and one.module == module and one.hits(self.step) else None

    def spend(self, usual_s: float, kind: str, module: str | None = None, size: float = 1.0) -> None:
        """Sleep for a part of the step; ``size`` is that of the batch, in usual ones."""
        one = self.fault(kind, module)
        noisy = usual_s * size * max(self._draw.gauss(1.0, SPREAD), 0.2)
        time.sleep(noisy + (one.amount if one is not None else 0.0))


class _Backward(torch.autograd.Function):
    """Identity whose backward takes time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, spend: Callable[[], None]) -> Tensor:
        ctx.spend = spend
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.spend()
        return grads[0], None


class Block(nn.Module):
    """A layer that takes time in forward and in backward."""

    def __init__(self, name: str, times: Times) -> None:
        super().__init__()
        self.layer = nn.Linear(SIZE, SIZE)
        self._name, self._times = name, times

    def forward(self, x: Tensor) -> Tensor:
        """Run the layer; sleep now and in backward."""
        size = len(x) / ROWS
        self._times.spend(FORWARD_S, "forward", self._name, size)
        x = _Backward.apply(  # type: ignore[no-untyped-call]
            x, lambda: self._times.spend(BACKWARD_S, "backward", self._name, size)
        )
        return torch.relu(self.layer(x)) + x


class Model(nn.Module):
    """Blocks in sequence."""

    def __init__(self, times: Times) -> None:
        super().__init__()
        self.embed = nn.Linear(SIZE, SIZE)
        for name in MODULES:
            self.add_module(name, Block(name, times))
        self.head = nn.Linear(SIZE, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a number for each sample."""
        x = self.embed(x)
        for name in MODULES:
            x = self.get_submodule(name)(x)
        return self.head(x)  # type: ignore[no-any-return]


class Batches(Dataset[Tensor]):
    """Batches that take time to load."""

    def __init__(self, run: Run, times: Times) -> None:
        self._steps, self._times = run.steps, times

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, at: int) -> Tensor:
        self._times.step = at + 1
        self._times.spend(LOADER_S, "loader")
        larger = self._times.fault("batches")
        return torch.randn(round(ROWS * (larger.amount if larger is not None else 1.0)), SIZE)


class Optimizer(torch.optim.SGD):
    """SGD whose step takes time."""

    times: Times

    def step(self, closure: Any = None) -> Any:
        """Sleep, and update."""
        self.times.spend(OPTIMIZER_S, "optimizer")
        return super().step(closure)


def between_steps(times: Times) -> None:
    """Pause the process, collect garbage, or end the process, as the fault says."""
    if (pause := times.fault("pause")) is not None:
        pid, delay_s = os.getpid(), PAUSED_WITHIN_S * (times.step * GOLDEN % 1)
        stop = f"sleep {delay_s:.3f}; kill -STOP {pid}; sleep {pause.amount:.3f}; kill -CONT {pid}"
        subprocess.Popen(["/bin/sh", "-c", stop])
    if times.fault("collection") is not None:
        gc.collect()
    if times.fault("dead") is not None:
        os.kill(os.getpid(), signal.SIGKILL)


def train(run: Run, rank: int, output: Path) -> list[dict[str, Any]]:
    """Train and return the findings of this rank's summary."""
    from .forms import FORMS

    torch.manual_seed(run.seed)
    times = Times(run, rank)
    model, parameters, step = FORMS[run.form](times)
    optimizer = Optimizer(parameters, lr=0.001)
    optimizer.times = times
    objects = _hold_objects(run, rank)
    session = autoprof.instrument(model, {"output": str(output)}, optimizer=optimizer)
    try:
        for batch in _loader(run, times):
            step(model, batch, optimizer)
            between_steps(times)
    finally:
        session.close()
        if objects:
            objects.clear()
            gc.unfreeze()
    return [_finding(one) for one in session.summary().findings]


def _hold_objects(run: Run, rank: int) -> list[Any]:
    """Return the objects that this rank's collections look at: as many as take the fault's time."""
    fault = run.fault
    if fault is None or fault.kind != "collection" or fault.rank != rank:
        return []
    gc.collect()
    gc.freeze()
    return [[number] for number in range(min(round(fault.amount / OBJECT_S), MAX_OBJECTS))]


def _loader(run: Run, times: Times) -> Iterator[Tensor]:
    return iter(DataLoader(Batches(run, times), batch_size=None))


def _finding(found: autoprof.Finding) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "severity": found.severity,
        "rank": found.rank,
        "name": found.name,
        "phase": None if found.phase is None else str(found.phase),
        "why": found.why,
        "next": found.next,
        "gain_ns": found.gain_ns,
        "evidence": dict(found.evidence),
    }
