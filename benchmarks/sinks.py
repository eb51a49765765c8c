"""Measure the cost of the sinks in each step: sessions that stay open, each with a model of its own, take turns.

A block of some 40 steps cannot show it: the first ten steps of a session pay for the first line of the console, and
the records are compressed after some 200 steps, so that they fall into one block or into none. Here a turn is of
``STEPS`` steps of a session that has run before, so that each turn has its share of blocks of records, and of text.
"""

from __future__ import annotations

import contextlib
import gc
import random
import shutil
import tempfile
from typing import Any, Final

import torch

from .interleave import Block, Progress, block_value, time_steps
from .ours import BOTH, Discard, Recording, Sessions
from .variant import Variant
from .workloads import CLOCKS, Workload, tiny_layers

STEPS: Final = 500
"""Steps of a turn: twice as many as the steps of a block of records."""
SINKS: Final = {
    "log": "+ timing.log",
    "jsonl": "+ steps.jsonl and spans.bin",
    "full": "+ all default sinks",
}
LABELS: Final = {
    "record_both": "autoprof: recording, forward + backward",
    "session_both": "autoprof: + resolution and statistics, both",
    **SINKS,
}


def run(
    rounds: int, clock: str = "wall", *, steps: int = STEPS, progress: Progress = lambda line: None
) -> dict[str, Any]:
    """Let the sessions take turns of ``steps`` steps, after a turn that is not counted."""
    folder, draw = tempfile.mkdtemp(prefix="autoprof-bench-"), random.Random(0)
    lanes: dict[str, tuple[Workload, Variant]] = {}
    blocks: dict[str, list[dict[str, Any]]] = {}
    try:
        with contextlib.redirect_stdout(Discard()):
            for variant in _variants(folder):
                workload = tiny_layers(torch.device("cpu"))
                workload.clock = CLOCKS[clock]
                variant.open(workload)
                lanes[variant.name] = workload, variant
        order = list(lanes)
        for number in range(-1, rounds):
            progress(f"sinks: round {max(number, 0) + 1} of {rounds}")
            draw.shuffle(order)
            gc.collect()
            for name in order:
                block = _turn(*lanes[name], number, steps)
                if number >= 0:
                    blocks.setdefault(name, []).append(block.to_dict())
    finally:
        with contextlib.redirect_stdout(Discard()):
            for _, variant in lanes.values():
                variant.close()
        shutil.rmtree(folder, ignore_errors=True)
    modules = len(lanes["bare"][0].targets)
    return {"modules": modules, "steps": steps, "rounds": rounds, "labels": LABELS, "blocks": blocks}


def _variants(folder: str) -> list[Variant]:
    def session(name: str, **changes: Any) -> Sessions:
        return Sessions(name, LABELS[name], BOTH, output=folder, **changes)

    return [
        Variant(),
        Recording("record_both", LABELS["record_both"], BOTH),
        session("session_both", sinks={}),
        session("log", sinks={"log": {}}),
        session("jsonl", sinks={"jsonl": {}}),
        session("full"),
    ]


def _turn(workload: Workload, variant: Variant, number: int, steps: int) -> Block:
    times = time_steps(workload.step, steps, workload.synchronize, variant.end_step, variant.flush, workload.clock)
    value = block_value(times, asynchronous=workload.asynchronous)
    # single times of some thousand steps would be most of the file
    return Block(number, value, [], [], times.flush_ns, times.whole_ns)
