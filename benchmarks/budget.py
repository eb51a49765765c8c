"""``python -m benchmarks.budget``: does the governor keep its budget, and are the means of the steps it records right?

The overhead of a run is asked for in two ways. *By steps*: every step is timed from outside, with ``session.step()``
after it. What a recorded step took beyond the steps left alone around it, and what ``session.step()`` takes after
those, is autoprof's; its sum over the run is the overhead. *By runs*: whole runs with autoprof against bare runs of as
many steps, in turns; it sees everything, but on a machine that others use not sharply. Steps beyond ``OUTLIER`` times
the median are the machine's: both ways leave them out.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import autoprof
from autoprof import StepFrame

from . import machine, stats
from .options import RESULTS

Integers = npt.NDArray[np.int64]

BUDGETS: Final = (0.005, 0.01, 0.05)
STEPS_MS: Final = (0.3, 1.0, 10.0, 100.0)
ALLOWED: Final = 1.2
"""The overhead that is allowed, in budgets."""
NEAR: Final = 0.02
"""How far the means of sampled steps may lie from those of the full record."""
OUTLIER: Final = 5.0
AROUND: Final = 32
"""Steps left alone on either side that say what a recorded step would have taken."""
LAYERS: Final = {0.3: 8, 1.0: 24, 10.0: 24, 100.0: 24}


class Residual(nn.Module):
    """A layer of this width that keeps the scale of what it is given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = x + self.linear(self.norm(x))
        return made


@dataclass(frozen=True)
class Work:
    """A model and a step of it that takes about ``ms``; every module is a target."""

    ms: float
    model: nn.Module
    step: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one budget came to on one length of step."""

    step_ms: float
    budget: float
    modules: int
    steps: int
    recorded: float
    by_steps: dict[str, float]
    by_runs: dict[str, float]
    own_clock: float
    paired: dict[str, float] | None
    mean_error: float
    worst_error: float
    outliers: int

    @property
    def kept(self) -> bool:
        """Whether the overhead is within what is allowed."""
        return self.by_steps["value"] <= ALLOWED * self.budget


def make_work(ms: float) -> Work:
    """Build a model and find the batch with which a step takes this long."""
    torch.manual_seed(0)
    width = 16 if ms < 5 else 128
    model = nn.Sequential(*(Residual(width) for _ in range(LAYERS[ms])))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step_of(rows: int) -> Callable[[], None]:
        x = torch.randn(rows, width)

        def step() -> None:
            model(x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    low, high = 1, 1 << 16
    while high - low > max(low // 8, 1):
        middle = (low + high) // 2
        if _length_ms(step_of(middle)) < ms:
            low = middle
        else:
            high = middle
    return Work(ms, model, step_of(low))


def _length_ms(step: Callable[[], None]) -> float:
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
    """The steps of one run, timed from outside, and what autoprof said of them."""

    steps_ns: Integers
    frames: list[StepFrame]
    summary: Any

    def usual(self) -> npt.NDArray[np.bool_]:
        """Tell which steps are the program's, not the machine's."""
        kept: npt.NDArray[np.bool_] = self.steps_ns < OUTLIER * np.median(self.steps_ns)
        return kept


def run_bare(work: Work, steps: int) -> Integers:
    """Time the steps of a bare run."""
    times = np.empty(steps, dtype=np.int64)
    for i in range(steps):
        began = perf_counter_ns()
        work.step()
        times[i] = perf_counter_ns() - began
    return times


def run_with(work: Work, steps: int, budget: float | None) -> Run:
    """Time the steps of a run under observation, with what ``session.step()`` takes."""
    keep = Keep()
    config = {"targets": [{"match": ".+"}], "sinks": {}, "step": "manual", "sample": {"budget": budget}}
    times = np.empty(steps, dtype=np.int64)
    with autoprof.instrument(work.model, config, sinks=[keep]) as session:
        for i in range(steps):
            began = perf_counter_ns()
            work.step()
            session.step()
            times[i] = perf_counter_ns() - began
    return Run(times, keep.frames, session.summary())


def overhead_by_steps(run: Run, light_ns: float) -> float:
    """Return the overhead of a run by its own bare steps; ``light_ns`` is ``session.step()`` after one of those."""
    count = len(run.steps_ns)
    with_hooks = np.zeros(count, dtype=bool)
    for frame in run.frames:
        if frame.step <= count:
            with_hooks[frame.step - 1] = True
            if frame.gap_steps:  # what ends a gap is done at the end of its last step
                with_hooks[frame.step - 2] = True
    usual = run.usual()
    bare = np.flatnonzero(usual & ~with_hooks)
    if not len(bare):
        return float("nan")
    recorded = np.flatnonzero(usual & with_hooks)
    at = np.searchsorted(bare, recorded)
    extra = 0.0
    for step, position in zip(recorded.tolist(), at.tolist(), strict=True):
        around = bare[max(position - AROUND, 0) : position + AROUND]
        extra += float(run.steps_ns[step] - run.steps_ns[around].mean())
    whole = float(run.steps_ns[usual].sum())
    extra += light_ns * len(bare)
    return extra / (whole - extra)


def light_path_ns(work: Work) -> float:
    """Return what ``session.step()`` takes after a step that is left alone: the median of many calls."""
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


def means(frames: Sequence[StepFrame]) -> dict[tuple[str, str], float]:
    """Return the mean of each name and phase over these steps, those of the machine left out."""
    length = median([frame.duration_ns for frame in frames])
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    columns: dict[Any, list[Integers]] = {}
    for frame in frames:
        if frame.duration_ns <= OUTLIER * length and not frame.warmup:
            columns.setdefault(frame.layout, []).append(frame.host_ns)
    for layout, steps in columns.items():
        total = np.sum(steps, axis=0)
        keys = list(zip(layout.names, map(str, layout.phases), strict=True))
        for key in dict.fromkeys(keys):
            ns, count = sums.get(key, (0.0, 0))
            own = sum(int(total[at]) for at, one in enumerate(keys) if one == key)
            sums[key] = ns + own, count + len(steps)
    return {key: ns / count for key, (ns, count) in sums.items()}


def mean_errors(sampled: Sequence[StepFrame], theirs: dict[tuple[str, str], float], step_ns: float) -> list[float]:
    """Return how far the sampled means lie from the full record's, for what is above a hundredth of the step."""
    ours = means(sampled)
    return [abs(ours[key] / theirs[key] - 1) for key in theirs if key in ours and theirs[key] >= step_ns / 100]


def measure(work: Work, budgets: Sequence[float], seconds: float, rounds: int) -> Iterator[Cell]:
    """Run all budgets, the full record and bare runs in turns, and yield a cell for each budget."""
    steps = max(round(seconds * 1e3 / work.ms), 60)
    light_ns = light_path_ns(work)
    variants: list[float | None] = [*budgets, None]
    runs: dict[float | None, list[Run]] = {budget: [] for budget in variants}
    bare: list[Integers] = []
    draw = random.Random(0)
    for _ in range(rounds):
        order: list[Any] = [*variants, "bare"]
        draw.shuffle(order)
        for variant in order:
            gc.collect()
            if variant == "bare":
                bare.append(run_bare(work, steps))
            else:
                runs[variant].append(run_with(work, steps, variant))
    full = means([frame for run in runs[None] for frame in run.frames])
    for budget in budgets:
        yield _cell(work, budget, runs[budget], full, bare, light_ns)


def _cell(
    work: Work,
    budget: float,
    runs: Sequence[Run],
    full: dict[tuple[str, str], float],
    bare: Sequence[Integers],
    light_ns: float,
) -> Cell:
    def usual_mean(times: Integers) -> float:
        return float(times[times < OUTLIER * np.median(times)].mean())

    last = runs[-1].summary
    frames = [frame for run in runs for frame in run.frames]
    errors = mean_errors(frames, full, work.ms * 1e6)
    compared = [usual_mean(run.steps_ns) / usual_mean(times) - 1 for run, times in zip(runs, bare, strict=True)]
    return Cell(
        step_ms=work.ms,
        budget=budget,
        modules=sum(1 for _ in work.model.modules()) - 1,
        steps=sum(len(run.steps_ns) for run in runs),
        recorded=len(frames) / sum(len(run.steps_ns) for run in runs),
        by_steps=asdict(stats.median([overhead_by_steps(run, light_ns) for run in runs])),
        by_runs=asdict(stats.median(compared)),
        own_clock=median([run.summary.overhead for run in runs]),
        paired=None if last.paired is None else dict(zip(("value", "low", "high"), last.paired.of_run, strict=True)),
        mean_error=median(errors) if errors else float("nan"),
        worst_error=max(errors, default=float("nan")),
        outliers=sum(int((~run.usual()).sum()) for run in runs),
    )


HEAD: Final = (
    "| step | budget | recorded | overhead by steps | allowed | by whole runs | own clock | own pairs | means off by |"
)


def render(cells: Sequence[Cell]) -> str:
    """Return the table."""
    lines = [HEAD, "|" + "---|" * 9]
    for cell in cells:
        pairs = "-" if cell.paired is None else _interval(cell.paired)
        lines.append(
            f"| {cell.step_ms:g} ms, {cell.modules} modules | {cell.budget:.1%} | {cell.recorded:.1%} "
            f"| {_interval(cell.by_steps)} | ≤ {ALLOWED * cell.budget:.2%} {'pass' if cell.kept else 'FAIL'} "
            f"| {_interval(cell.by_runs)} | {cell.own_clock:.2%} | {pairs} "
            f"| {cell.mean_error:.1%}, worst {cell.worst_error:.1%} |"
        )
    return "\n".join(lines)


def _interval(found: dict[str, float]) -> str:
    return f"{found['value']:.2%} [{found['low']:.2%}, {found['high']:.2%}]"


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 when a budget is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each variant (default: %(default)s)")
    parser.add_argument("--steps", default=",".join(f"{ms:g}" for ms in STEPS_MS), help="lengths, in ms, by comma")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the JSON")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cells: list[Cell] = []
    for ms in (float(word) for word in options.steps.split(",")):
        cells += measure(make_work(ms), BUDGETS, options.seconds, options.rounds)
        print(render(cells[-len(BUDGETS) :]), flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    raw = options.output / "budget.json"
    raw.write_text(json.dumps({"machine": machine.describe(), "cells": [asdict(cell) for cell in cells]}) + "\n")
    print(f"\n{render(cells)}\n\n{raw}")
    return int(not all(cell.kept for cell in cells))


if __name__ == "__main__":
    raise SystemExit(main())
