"""``python -m benchmarks.scaling``: the cost of a profiler by number of modules and by length of a step.

For each point the variants take turns in one process, each with a model of its own: a chain of layers
``Linear(16, 16)``, forward and backward. For the lengths, a chain of five is followed by a loop that reads the clock
until the time is over. ``autoprof by default`` is one line without configuration, with all its sinks, for ``--seconds``
from its first step on, in a process of its own; the loan of its first steps is in its cost. The page is
docs/scaling.md.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any, Final

import torch

from . import machine
from .floors import BackwardFloor
from .interleave import Progress, time_steps
from .others import SynchronisingTimers, TorchProfiler, quiet
from .ours import Discard, Full
from .run import print_line
from .scaling_default import Default, measure_apart
from .variant import Variant
from .workloads import Workload, tiny_layers

RESULTS: Final = Path(__file__).resolve().parent / "results" / "scaling.json"
MODULES: Final = (10, 100, 1_000, 10_000)
LENGTHS_MS: Final = (0.1, 1.0, 10.0, 100.0, 1000.0)
LENGTH_MODULES: Final = 5
"""Modules of the chain whose step is made longer: its own step takes about 0.1 ms."""
CYCLE: Final = {"wait": 5, "warmup": 1, "active": 3}
"""The schedule in the recipe of PyTorch's documentation."""
CYCLE_STEPS: Final = sum(CYCLE.values())
TURN_S: Final = 0.3
ROUNDS: Final = 5
FEWEST_ROUNDS: Final = 3
FEWEST_STEPS: Final = 4
"""Steps of a turn, at least."""
LONG_STEP_S: Final = 0.15
FEWEST_LONG_STEPS: Final = 2
"""Steps of a turn, at least, where a bare one takes ``LONG_STEP_S``."""
LONGEST_TURN_S: Final = 60.0
"""A variant with a longer turn has only that one, and no cost."""
LONGEST_POINT_S: Final = 8.0
"""Where the turns of a point take longer, it has fewer rounds."""


class EveryStep(Full):
    """autoprof with every module a target and every step recorded, all default sinks."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.label = "every_step", "autoprof, every module in every step"

    def open(self, workload: Workload) -> None:
        """Instrument the model without a budget: with one, few steps are recorded after the first ones."""
        super().open(replace(workload, config={**workload.config, "sample": {"budget": None}}))


class ScheduledProfiler(TorchProfiler):
    """``torch.profiler`` in cycles, each of which writes a trace, as the recipe in PyTorch's documentation has it."""

    name = "torch_profiler_scheduled"
    label = "torch.profiler, 3 of 9 steps, traces written"

    def open(self, workload: Workload) -> None:
        """Start the profiler in a cycle's first step."""
        self._folder = tempfile.mkdtemp(prefix="autoprof-bench-")
        self._profiler = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(**CYCLE),
            on_trace_ready=torch.profiler.tensorboard_trace_handler(self._folder),
        )
        self._profiler.start()

    def close(self) -> None:
        """Stop the profiler and remove its traces."""
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class HandWrittenHooks(BackwardFloor):
    """Hooks that read the clock in forward and backward and append the reading, and do nothing with it."""

    label = "hand-written hooks, readings thrown away"


def variants() -> list[Variant]:
    """Return the variants, in the order of the page."""
    return [
        Variant(),
        Default(),
        EveryStep(),
        ScheduledProfiler(),
        TorchProfiler(),
        HandWrittenHooks(),
        SynchronisingTimers(),
    ]


@dataclass
class _Lane:
    """A variant on a model of its own, with the time of its steps by round."""

    variant: Variant
    workload: Workload
    stays_open: bool
    seconds: list[float] = field(default_factory=list)
    """Mean time of a step in each turn."""
    turns: list[int] = field(default_factory=list)
    omitted: str | None = None
    """Why its cost is not measured."""

    def turn(self, steps: int) -> float:
        """Run steps; return their seconds."""
        variant, workload, began = self.variant, self.workload, perf_counter()
        if not self.stays_open:
            variant.open(workload)
        try:
            times = time_steps(workload.step, steps, workload.synchronize, variant.end_step, variant.flush)
        finally:
            if not self.stays_open:
                variant.close()
        self.seconds.append(times.whole_ns / steps / 1e9)
        self.turns.append(steps)
        turn_s = perf_counter() - began
        if turn_s > LONGEST_TURN_S and variant.family != "bare":
            self.omitted = f"its first {steps} steps, with opening and closing it, took {turn_s:.0f} s"
        return times.whole_ns / 1e9


def chain(modules: int, length_ms: float | None = None) -> Workload:
    """Return a chain of tiny layers; with ``length_ms`` its step is followed by a loop up to that length."""
    workload = tiny_layers(torch.device("cpu"), layers=modules)
    if length_ms is None:
        return workload
    step = workload.step
    for _ in range(20):
        step()
    own_ns = median(time_steps(step, 50, workload.synchronize).steps_ns)
    rest_ns = round(max(length_ms * 1e6 - own_ns, 0))

    def longer() -> None:
        step()
        until = perf_counter_ns() + rest_ns
        while perf_counter_ns() < until:
            pass

    workload.step = longer
    return workload


def measure_point(make: Callable[[], Workload], default_s: float, chosen: Sequence[Variant]) -> dict[str, Any]:
    """Measure one point without the lines that Kineto and the sessions print."""
    with quiet(), contextlib.redirect_stdout(Discard()), contextlib.redirect_stderr(Discard()):
        return _measure(make, default_s, chosen)


def _measure(make: Callable[[], Workload], default_s: float, chosen: Sequence[Variant]) -> dict[str, Any]:
    """Let the variants take turns at one point, after the run of the default if it is among them."""
    default = next((variant for variant in chosen if isinstance(variant, Default)), None)
    default_run = None if default is None else measure_apart(make, default_s)
    lanes = [_Lane(variant, make(), isinstance(variant, EveryStep)) for variant in chosen if variant is not default]
    bare = next(lane for lane in lanes if lane.variant.family == "bare")
    for lane in lanes:
        lane.workload.step()
    step_s = median(time_steps(bare.workload.step, 3, bare.workload.synchronize).steps_ns) / 1e9
    steps = max(round(TURN_S / step_s), FEWEST_STEPS if step_s < LONG_STEP_S else FEWEST_LONG_STEPS)
    cycles = max(round(TURN_S / step_s / CYCLE_STEPS), 1)
    draw, began, number = random.Random(0), perf_counter(), 0
    try:
        for lane in lanes:
            if lane.stays_open:
                lane.variant.open(lane.workload)
                for _ in range(lane.variant.least_warmup):
                    lane.workload.step()
                    lane.variant.end_step()
        while number < ROUNDS and (number < FEWEST_ROUNDS or perf_counter() - began < LONGEST_POINT_S):
            gc.collect()
            for lane in draw.sample(lanes, len(lanes)):
                if lane.omitted is not None:
                    continue
                lane.turn(cycles * CYCLE_STEPS if isinstance(lane.variant, ScheduledProfiler) else steps)
            number += 1
    finally:
        for lane in lanes:
            lane.variant.close()
    bare_s = median(bare.seconds)
    costs = {
        lane.variant.name: median(lane.seconds) / bare_s - 1 if lane.omitted is None else None
        for lane in lanes
        if lane is not bare
    }
    point: dict[str, Any] = {
        "modules": len(bare.workload.targets),
        "step_s": bare_s,
        "rounds": number,
        "costs": costs,
        "omitted": {lane.variant.name: lane.omitted for lane in lanes if lane.omitted is not None},
        "turns": {lane.variant.name: {"seconds": lane.seconds, "steps": lane.turns} for lane in lanes},
    }
    if default is not None and default_run is not None:
        costs[default.name] = default_run.cost
        point["default"] = default_run.to_dict()
    return point


def run(
    modules: Sequence[int], lengths_ms: Sequence[float], default_s: float, progress: Progress = print_line
) -> dict[str, Any]:
    """Measure all points; return the results as plain JSON types."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "seconds_of_default": default_s,
        "labels": {variant.name: variant.label for variant in variants() if variant.family != "bare"},
        "modules": [],
        "lengths": [],
    }
    began = perf_counter()
    for count in modules:
        progress(f"{count:,} modules")
        results["modules"].append(measure_point(partial(chain, count), default_s, variants()))
    for length_ms in lengths_ms:
        progress(f"steps of {length_ms:g} ms")
        results["lengths"].append(measure_point(partial(chain, LENGTH_MODULES, length_ms), default_s, variants()))
    results["seconds"] = round(perf_counter() - began)
    progress("")
    return results


def main(arguments: list[str] | None = None) -> int:
    """Measure, or read an earlier run's results; write the JSON, the pictures and the page."""
    from .scaling_page import write_page

    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="seconds of the default at each point (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="a look at three points, which writes no page")
    parser.add_argument("--report", action="store_true", help="measure nothing: write the page of the last results")
    parser.add_argument(
        "--modules", type=int, nargs="+", default=[], help="measure these numbers of modules only; writes no page"
    )
    parser.add_argument(
        "--lengths", type=float, nargs="+", default=[], help="measure these lengths in ms only; writes no page"
    )
    options = parser.parse_args(arguments)
    if options.report:
        write_page(json.loads(RESULTS.read_text(encoding="utf-8")))
        return 0
    warnings.filterwarnings("ignore", message=".*Profiler")
    if options.quick:
        print(json.dumps(run((10, 300), (1.0,), 2.0), indent=1))
        return 0
    if options.modules or options.lengths:
        print(json.dumps(run(options.modules, options.lengths, options.seconds), indent=1))
        return 0
    results = run(MODULES, LENGTHS_MS, options.seconds)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page(results)
    print(f"{RESULTS}: {results['seconds']} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
