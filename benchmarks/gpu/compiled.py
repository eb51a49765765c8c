"""``python -m benchmarks.gpu.compiled``: a small GPT, eager and compiled; compilation's gain by module."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import autoprof
from autoprof.base.summary import Summary

from ..gpt import SmallGPT
from ..table import figures, parser, write
from ..variants import Discard

STEPS, BATCH, LENGTH, WORDS = 300, 16, 256, 1024
LEAST = 0.02
"""Rows below this share of the step are not listed."""
INTRO = """\
# What does compilation gain, by module?

**Result**: {eager:.1f} ms a step eager, {compiled:.1f} ms compiled

A GPT of {layers} blocks, with bfloat16 autocast, {steps} steps each way; milliseconds a step.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train both ways, print, write."""
    options = parser("benchmarks.gpu.compiled", __doc__).parse_args(arguments)
    layers, width, steps = (2, 64, 30) if options.quick else (12, 768, STEPS)
    eager, compiled = (_train(layers, width, steps, is_compiled=way) for way in (False, True))
    tables = [_by_row(summary) for summary in (eager, compiled)]
    names = list(dict.fromkeys([*tables[0], *tables[1]]))
    rows = [(f"`{name}`", *tables[0].get(name, ("", "")), *tables[1].get(name, ("", ""))) for name in names]
    header = ("row", "eager: forward", "backward", "compiled: forward", "backward")
    ms = [summary.step_mean_ns / 1e6 for summary in (eager, compiled)]
    intro = INTRO.format(eager=ms[0], compiled=ms[1], layers=layers, steps=steps)
    write(options, [intro, *figures("rows", header, rows)])
    return 0


def _by_row(summary: Summary) -> dict[str, tuple[str, str]]:
    """Return forward and backward of each row in milliseconds a step."""
    found: dict[str, dict[str, float]] = {}
    for row in summary.rows:
        if row.phase in ("forward", "backward") and row.share >= LEAST:
            found.setdefault(row.name, {})[str(row.phase)] = row.share * summary.step_mean_ns / 1e6
    return {
        name: (f"{phases.get('forward', 0.0):.2f}", f"{phases.get('backward', 0.0):.2f}")
        for name, phases in found.items()
    }


def _train(layers: int, width: int, steps: int, *, is_compiled: bool) -> Summary:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = SmallGPT(vocabulary=WORDS, context=LENGTH, width=width, layers=layers, heads=8).to(device)
    run: Any = torch.compile(model) if is_compiled else model
    optimizer = torch.optim.AdamW(model.parameters())
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(Discard()):
        session = autoprof.instrument(model, {"output": str(Path(folder))}, optimizer=optimizer)
        for _ in range(steps):
            ids = torch.randint(0, WORDS, (BATCH, LENGTH + 1), device=device)
            with torch.autocast(device, torch.bfloat16):
                out = run(ids[:, :-1])
            loss: Any = nn.functional.cross_entropy(out.flatten(0, 1).float(), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        session.close()
    return session.summary()


if __name__ == "__main__":
    sys.exit(main())
