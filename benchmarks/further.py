"""Measure the cost of one more module: a chain of tiny layers and one four times as long, interleaved.

The difference of the two excludes the fixed cost of a step, the floor's and ours.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from . import floors, others, ours
from .interleave import Measured, Progress, interleave
from .variant import Variant
from .workloads import CLOCKS, TINY_LAYERS, tiny_layers

LONGER: Final = 4
VARIANTS: Final = (
    "bare",
    "record_forward",
    "session_forward",
    "record_both",
    "session_both",
    "floor_forward",
    "floor_both",
    "full_backward_hook",
)


def run(rounds: int, clock: str = "wall", *, steps: int = 30, progress: Progress = lambda line: None) -> dict[str, Any]:
    """Let the variants take turns on both chains; ``steps`` is how many of the short one are a block."""
    candidates = [Variant(), *ours.variants(), floors.ForwardFloor(), floors.BackwardFloor(), *others.variants()]
    variants = [variant for variant in candidates if variant.name in VARIANTS]
    layers = {"short": TINY_LAYERS, "long": LONGER * TINY_LAYERS}
    chains = {name: tiny_layers(torch.device("cpu"), layers=count) for name, count in layers.items()}
    measured = {name: Measured() for name in chains}
    try:
        for number in range(rounds):
            for name, chain in chains.items():
                chain.clock = CLOCKS[clock]
                count = max(steps * TINY_LAYERS // layers[name], 2)
                turn = range(number, number + 1)
                interleave(chain, variants, measured[name], rounds=turn, steps=count, warmup=3, progress=progress)
    finally:
        for variant in variants:
            variant.shutdown()
    return {
        "layers": layers,
        "labels": {variant.name: variant.label for variant in variants if variant.name != "bare"},
        "blocks": {
            name: {key: [block.to_dict() for block in blocks] for key, blocks in one.blocks.items()}
            for name, one in measured.items()
        },
    }
