"""Run the selected variants, models and rounds; return the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from . import floors, identical, machine, micro, others, ours
from .interleave import Measured, Progress, interleave, steps_per_block
from .options import Options
from .variant import Variant
from .workloads import BUILDERS, CLOCKS, Workload

FOCUS: Final = ("bare", "never_opened", "closed", "idle", "full")
"""On the reference workload these have bounds of half a percent: they get more steps than the rest."""
FOCUS_ROUNDS: Final = 12
FOCUS_STEPS: Final = 5
"""Steps of a block there: half a percent is less than two steps of one program differ by."""
BLOCK_S: Final = 0.4
"""Length of a block. Without a sink, a session resolves some 200 of the steps of 1 ms at once, and a block ends with a
resolution: in a shorter one fewer steps pay for it than in a training."""
WARMUP: Final = 3


def all_variants() -> list[Variant]:
    """Return every variant, in the order of the table."""
    return [
        Variant(),
        *ours.variants(),
        floors.ForwardFloor(),
        floors.BackwardFloor(),
        *others.variants(),
    ]


def measure_workload(
    workload: Workload,
    variants: Sequence[Variant],
    *,
    rounds: int,
    focus_rounds: int = 0,
    progress: Progress,
    left_s: Callable[[], float] | None = None,
    quick: bool = False,
) -> dict[str, Any]:
    """Let the variants take turns on one workload; with ``left_s``, only as many rounds as fit into it.

    ``quick`` blocks are too short to mean anything: they show that the variants run.
    """
    measured = Measured()
    heavy = workload.name == "reference"
    steps = steps_per_block(workload, BLOCK_S, least=2 if heavy else 8)
    warmup = 1 if heavy else WARMUP
    if quick:
        steps, warmup = 2, 1
    try:
        interleave(
            workload,
            variants,
            measured,
            rounds=range(rounds),
            steps=steps,
            warmup=warmup,
            progress=progress,
            left_s=left_s,
        )
        done = measured.rounds
        chosen = [variant for variant in variants if variant.name in FOCUS]
        further = range(rounds, rounds + focus_rounds)
        interleave(workload, chosen, measured, rounds=further, steps=FOCUS_STEPS, warmup=WARMUP, progress=progress)
    finally:
        for variant in variants:
            variant.shutdown()
    return {
        "title": workload.title,
        "modules": len(workload.targets),
        "steps_per_block": steps,
        "rounds": done,
        "rounds_wanted": rounds,
        "labels": {variant.name: variant.label for variant in variants},
        "families": {variant.name: variant.family for variant in variants},
        "hooks_left": workload.hooks(),
        "errors": measured.errors,
        "blocks": {name: [block.to_dict() for block in blocks] for name, blocks in measured.blocks.items()},
    }


def print_line(line: str) -> None:
    """Show progress on a terminal, in one line that is written over; nothing where it would only fill a log."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def run(options: Options, progress: Progress = print_line) -> dict[str, Any]:
    """Measure the selected parts; return the results as plain JSON types."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "options": {
            "size": options.size,
            "rounds": options.rounds,
            "threads": options.threads,
            "quick": options.quick,
            "clock": options.clock,
        },
        "workloads": {},
    }
    if "always_on" in options.parts:
        from .always_on.rows import Bench
        from .always_on.scale import DEFAULT, QUICK

        scale = QUICK if options.quick else DEFAULT
        results["always_on"] = Bench(scale, clock=options.clock, threads=options.threads, progress=progress).measure()
    workloads = [BUILDERS[name](torch.device("cpu"), options.size) for name in options.models]
    if "models" in options.parts:
        for workload in workloads:
            workload.clock = CLOCKS[options.clock]
            heavy = workload.name == "reference"
            rounds = max(2, options.rounds // (4 if options.quick else 6)) if heavy else options.rounds
            results["workloads"][workload.name] = measure_workload(
                workload,
                all_variants(),
                rounds=rounds,
                focus_rounds=0 if options.quick or not heavy else FOCUS_ROUNDS,
                progress=progress,
            )
    if "micro" in options.parts:
        progress("single costs")
        results["micro"] = micro.run(workloads, quick=options.quick)
    if "identical" in options.parts:
        progress("bits")
        results["identical"] = identical.run()
    progress("")
    return results
