"""What a user of one line gets: a GPT on the device, with the default configuration and its budget."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any, Final

import torch

import autoprof

from ..gpt import SmallGPT
from ..paired import turns
from ..workloads import Workload
from .target import Target

SIZES: Final = {"limited by the host": (4, 256, 8), "limited by the device": (12, 768, 8)}
"""Layers, width and batch."""
VOCABULARY: Final = 8192
CONTEXT: Final = 512
STEPS: Final = 300
TURNS: Final = 10
TURN_S: Final = 2.5
"""A pass comes each two seconds at most: in shorter turns it would count twice."""


def gpt(target: Target, layers: int, width: int, batch: int) -> Workload:
    """Return a GPT and a step of it."""
    torch.manual_seed(0)
    sizes: dict[str, int] = {"width": width, "layers": layers, "heads": max(width // 64, 1)}
    model = SmallGPT(vocabulary=VOCABULARY, context=CONTEXT, **sizes).to(target.place)
    tokens = torch.randint(0, VOCABULARY, (batch, CONTEXT + 1), device=target.place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        model.loss(tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return Workload("gpt", f"GPT of {layers} layers of width {width}", model, step, {}, optimizer)


def default_runs(target: Target, *, quick: bool) -> dict[str, Any]:
    """Return for each size the steps that a run records, and recorded turns of another run beside bare ones.

    A turn is long beside the queue, so its wall time is that of the device where the device is slower.
    """
    found: dict[str, Any] = {}
    for name, size in SIZES.items():
        make = partial(gpt, target, *((1, 64, 1) if quick else size))
        found[name] = {**_record(make(), target, 10 if quick else STEPS), "title": make().title}
        found[name]["turns"] = turns(
            make,
            {},
            turn_s=0.05 if quick else TURN_S,
            count=1 if quick else TURNS,
            settling=2 if quick else 200,
        )
    return found


def _record(workload: Workload, target: Target, steps: int) -> dict[str, Any]:
    """Return the steps recorded of a run, its rows, and its own account."""
    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder:
        with autoprof.instrument(workload.model, {"output": folder, "sinks": {"log": {}, "jsonl": {}}}) as session:
            for _ in range(steps):
                workload.step()
        target.synchronize()
        summary = session.summary()
    return {
        "steps": steps,
        "recorded": summary.all_steps - summary.unsampled_steps,
        "rows": len({row.name for row in summary.rows}),
        "step_ms": summary.step_mean_ns / 1e6,
        "overhead": summary.overhead,
        "notes": list(summary.notes),
    }
