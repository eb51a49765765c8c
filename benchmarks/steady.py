"""Measure what a step costs in the long run: each variant beside bare steps, some of either in turn.

A block that opens and closes a session shows how long its steps are, but not what is done once in hundreds of steps:
resolving them, compressing a block of records, writing lines of text. Here a session has run before it is measured, and
is measured for long enough. A shared processor has phases of half the speed, which last for seconds: each variant is
held against the bare steps between its own. Models differ by where their tensors lie in memory: a round has new ones.
"""

from __future__ import annotations

import contextlib
import gc
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final

import torch

from .floors import BackwardFloor, ForwardFloor
from .interleave import Progress, time_steps
from .ours import BOTH, FORWARD, Discard, Full, Recording, Sessions
from .variant import Variant
from .workloads import CLOCKS, Workload, reference, tiny_layers

STEPS: Final = 1000
"""Steps of a variant in a round: four blocks of records."""
IN_TURN: Final = 500
"""Steps of it in a row, half a second; as many bare ones of another model follow. They are part of the session's next
step, which is long, and ends in Python: in shorter turns that would be seen."""
SETTLING: Final = 250
"""Its steps before these: the first line of the console and the first sight of a layout are then over."""
REFERENCE_TURNS: Final = 4
"""Turns of a round on the reference workload."""
REFERENCE_IN_TURN: Final = 3
"""Its steps in a row: each of them takes about a second."""
REFERENCE_SETTLING: Final = 3
LABELS: Final = {
    "floor_forward": "floor: hand-written forward hooks",
    "record_forward": "autoprof: recording, forward",
    "session_forward": "autoprof: + resolution and statistics, forward",
    "floor_both": "floor: forward hooks + node prehooks",
    "record_both": "autoprof: recording, forward + backward",
    "session_both": "autoprof: + resolution and statistics, both",
    "log": "both, + timing.log",
    "jsonl": "both, + steps.jsonl and spans.bin",
    "full": "both, + all default sinks",
}


def run(
    rounds: int,
    clock: str = "wall",
    *,
    steps: int = STEPS,
    settling: int = SETTLING,
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Measure each variant once a round; a block's value is its step where a bare one has the round's mean length."""
    draw = random.Random(0)
    blocks: dict[str, list[dict[str, Any]]] = {}
    modules = 0
    for number in range(rounds):
        progress(f"long run: round {number + 1} of {rounds}")
        folder = tempfile.mkdtemp(prefix="autoprof-bench-")
        variants = _variants(folder)
        draw.shuffle(variants)
        found: dict[str, tuple[float, float]] = {}
        try:
            for variant in variants:
                own, bare = (tiny_layers(torch.device("cpu")) for _ in range(2))
                own.clock = bare.clock = CLOCKS[clock]
                modules = len(own.targets)
                found[variant.name] = _measure(variant, own, bare, steps, settling)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        bare_ns = fmean(mean_ns for _, mean_ns in found.values())
        values = {"bare": bare_ns, **{name: own_ns / mean_ns * bare_ns for name, (own_ns, mean_ns) in found.items()}}
        for name, value_ns in values.items():
            blocks.setdefault(name, []).append({"round": number, "value_ns": value_ns})
    return {"modules": modules, "steps": steps, "rounds": rounds, "labels": LABELS, "blocks": blocks}


def run_reference(
    rounds: int,
    clock: str = "wall",
    size: str = "small",
    *,
    turns: int = REFERENCE_TURNS,
    settling: int = REFERENCE_SETTLING,
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Measure the reference workload with its whole configuration beside bare steps: a value of either for each turn.

    Which of the two begins changes with each turn.
    """
    blocks: dict[str, list[dict[str, Any]]] = {"bare": [], "full": []}
    for number in range(rounds):
        progress(f"reference workload: round {number + 1} of {rounds}")
        own, bare = (reference(torch.device("cpu"), size) for _ in range(2))
        variant = Full()
        for _ in range(settling):
            bare.step()
        with _settled(variant, own, settling):
            for turn in range(turns):
                sides = [("full", own, variant.end_step), ("bare", bare, None)]
                for name, workload, end in sides if turn % 2 else sides[::-1]:
                    times = time_steps(workload.step, REFERENCE_IN_TURN, workload.synchronize, end, None, CLOCKS[clock])
                    value = {"round": number * turns + turn, "value_ns": times.whole_ns / REFERENCE_IN_TURN}
                    blocks[name].append(value)
    return {"size": size, "rounds": rounds, "turns": turns, "steps": REFERENCE_IN_TURN, "blocks": blocks}


def _variants(folder: str) -> list[Variant]:
    def session(name: str, phases: Sequence[str] = BOTH, **changes: Any) -> Sessions:
        return Sessions(name, LABELS[name], phases, output=folder, **changes)

    return [
        ForwardFloor(),
        Recording("record_forward", LABELS["record_forward"], FORWARD),
        session("session_forward", FORWARD, sinks={}),
        BackwardFloor(),
        Recording("record_both", LABELS["record_both"], BOTH),
        session("session_both", sinks={}),
        session("log", sinks={"log": {}}),
        session("jsonl", sinks={"jsonl": {}}),
        session("full"),
    ]


def _measure(variant: Variant, own: Workload, bare: Workload, steps: int, settling: int) -> tuple[float, float]:
    """Return the mean step of a variant, the work after each step included, and that of the bare steps between."""
    own_ns = bare_ns = 0
    in_turn = min(IN_TURN, steps)
    with _settled(variant, own, settling):
        for _ in range(0, steps, in_turn):
            own_ns += time_steps(own.step, in_turn, own.synchronize, variant.end_step, clock=own.clock).whole_ns
            bare_ns += time_steps(bare.step, in_turn, bare.synchronize, clock=bare.clock).whole_ns
    return own_ns / steps, bare_ns / steps


@contextlib.contextmanager
def _settled(variant: Variant, own: Workload, steps: int) -> Iterator[None]:
    """Open a variant and make these steps before the block, print nothing in it, and close the variant after it."""
    with contextlib.redirect_stdout(Discard()):
        try:
            variant.open(own)
            for _ in range(steps):
                own.step()
                variant.end_step()
            gc.collect()
            yield
        finally:
            variant.close()
