"""The models whose steps take as long as they are to, and their runs, bare and under observation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import torch
from torch import nn

import autoprof
from autoprof import StepFrame

from .witness import Chain, Integers, Witness

OUTLIER: Final = 5.0
"""Times the median: steps beyond it are the machine's."""
LAYERS: Final = {0.3: 3, 1.0: 10, 10.0: 24, 100.0: 24}
"""By the length of a step in milliseconds."""
SECONDS: Final = {0.3: 30.0, 1.0: 30.0, 10.0: 60.0, 100.0: 120.0}
"""How long a run is, by the length of its steps: the first steps, which are recorded on a loan, are to be paid back
at the smallest budget well before its end."""
LESS: Final = 4
"""How many times fewer steps a bare run has: it only gives a mean."""
FULL_S: Final = {0.3: 6.0, 1.0: 6.0, 10.0: 10.0, 100.0: 20.0}
"""How long the stretches of full record together are that lie between two runs, by the length of the steps."""
STRETCH_S: Final = 0.15
FEWEST: Final = 12
"""A stretch's length: long against its start-up cost, short against disturbances by other processes."""


class Residual(nn.Module):
    """A layer of this width that keeps the scale of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = x + self.linear(self.norm(x))
        return made


@dataclass(frozen=True)
class Work:
    """A model and a step of it that takes about ``ms``, the witness's readings included; every module is a target."""

    ms: float
    model: nn.Module
    witness: Witness
    step: Callable[[], None]


def make_work(ms: float) -> Work:
    """Build a model and find the batch with which a step takes this long."""
    torch.manual_seed(0)
    width = 16 if ms < 5 else 128
    witness = Witness(LAYERS[ms])
    model = Chain(witness, *(Residual(width) for _ in range(LAYERS[ms])))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step_of(rows: int) -> Callable[[], None]:
        x = torch.randn(rows, width)

        def step() -> None:
            model(x).pow(2).mean().backward()
            witness.read()
            optimizer.step()
            optimizer.zero_grad()

        return step

    low, high = 1, 1 << 16
    while high - low > max(low // 8, 1):
        middle = (low + high) // 2
        if _length_ms(step_of(middle), witness) < ms:
            low = middle
        else:
            high = middle
    return Work(ms, model, witness, step_of(low))


def _length_ms(step: Callable[[], None], witness: Witness) -> float:
    witness.begin(9)
    for _ in range(2):
        step()
    times = []
    for _ in range(7):
        began = perf_counter_ns()
        step()
        times.append(perf_counter_ns() - began)
    return median(times) / 1e6


class Keep:
    """Keep the frames of a run."""

    def __init__(self) -> None:
        self.frames: list[StepFrame] = []

    def write(self, frame: StepFrame) -> None:
        """Keep one."""
        self.frames.append(frame)

    def close(self, _summary: Any) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Run:
    """The steps of one run by an outside clock, by the witness, and by autoprof."""

    steps_ns: Integers
    layers_ns: Integers
    frames: list[StepFrame]
    summary: Any


def run_bare(work: Work, steps: int) -> Integers:
    """Time the steps of a bare run."""
    times = np.empty(steps, dtype=np.int64)
    work.witness.begin(steps)
    for i in range(steps):
        began = perf_counter_ns()
        work.step()
        times[i] = perf_counter_ns() - began
    return times


def run_with(work: Work, steps: int, budget: float | None, **sample: int) -> Run:
    """Time the steps of a profiled run, with the time of ``session.step()``."""
    keep = Keep()
    config = {"targets": [{"match": ".+"}], "sinks": {}, "step": "manual", "sample": {"budget": budget, **sample}}
    times = np.empty(steps, dtype=np.int64)
    work.witness.begin(steps)
    with autoprof.instrument(work.model, config, sinks=[keep]) as session:
        for i in range(steps):
            began = perf_counter_ns()
            work.step()
            session.step()
            times[i] = perf_counter_ns() - began
    return Run(times, work.witness.times(), keep.frames, session.summary())


def run_stretch(work: Work, steps: int) -> Run:
    """Run so many steps that are all recorded between two stretches of half as many bare ones.

    A machine that gets slower is so for both kinds alike. The first steps of each stretch are left out.
    """
    settling = max(steps // 8, 4)
    before = _bare_layers(work, settling, steps // 2)
    recorded = run_with(work, settling + steps, None, warmup=settling)
    after = _bare_layers(work, settling, steps // 2)
    frames = [replace(frame, step=frame.step - settling + len(before)) for frame in recorded.frames[settling:]]
    layers_ns = np.concatenate([before, recorded.layers_ns[settling:], after])
    return Run(recorded.steps_ns[settling:], layers_ns, frames, recorded.summary)


def _bare_layers(work: Work, settling: int, steps: int) -> Integers:
    run_bare(work, settling + steps)
    return work.witness.times()[settling:]


def light_path_ns(work: Work) -> float:
    """Return the median time of ``session.step()`` after an unsampled step."""
    config = {"targets": [{"match": ".+"}], "sinks": {}, "step": "manual", "sample": {"every": 1_000_000_000}}
    with autoprof.instrument(work.model, config) as session:
        for _ in range(4):
            session.step()
        times = []
        for _ in range(200):
            began = perf_counter_ns()
            for _ in range(100):
                session.step()
            times.append((perf_counter_ns() - began) / 100)
    return float(median(times))
