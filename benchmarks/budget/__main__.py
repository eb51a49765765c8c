"""``python -m benchmarks.budget``: does recording keep its budget, and are the means of the sampled steps correct?

The overhead of a run is measured in two ways. *By steps*: every step and the ``session.step()`` after it are timed from
outside. The overhead is the time of sampled steps beyond the unsampled steps around them, plus ``session.step()`` after
unsampled ones. *By runs*: whole runs with autoprof against bare runs of as many steps, interleaved; this includes
everything, but a busy machine makes it imprecise. Both exclude steps beyond ``OUTLIER`` times the median.

The means are compared with the program's own clock (``means``). *sampling*: the sampled steps against all steps, by
that clock. *means*: autoprof's mean of each name against a full record. ``open``: the standard error is too large for
a verdict at 2 %.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import torch

from .. import machine
from ..options import RESULTS
from .account import ALLOWED, Cell, measure
from .runs import make_work

BUDGETS: Final = (0.005, 0.01, 0.05)
STEPS_MS: Final = (0.3, 1.0, 10.0, 100.0)

HEAD: Final = (
    "| step | budget | recorded | overhead by steps | allowed | by whole runs | own account "
    "| sampling off by | means off by | standard error |"
)


def render(cells: Sequence[Cell]) -> str:
    """Return the table."""
    lines = [HEAD, "|" + "---|" * 10]
    lines.extend(
        f"| {cell.bare_ms:.2g} ms, {cell.modules} modules | {cell.budget:.1%} | {cell.recorded:.1%} "
        f"| {_interval(cell.by_steps)} | ≤ {ALLOWED * cell.budget:.2%} {'pass' if cell.kept else 'FAIL'} "
        f"| {_interval(cell.by_runs)} | {cell.own_clock:.2%} "
        f"| {_spread(cell.sampling)} | {_spread(cell.means)} {cell.near} | {_spread(cell.standard_error)} |"
        for cell in cells
    )
    return "\n".join(lines)


def _interval(found: dict[str, float]) -> str:
    return f"{found['value']:.2%} [{found['low']:.2%}, {found['high']:.2%}]"


def _spread(found: dict[str, float]) -> str:
    return f"{found['median']:.1%}, worst {found['worst']:.1%}"


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 if a bound is missed or inconclusive."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="make all runs so many times as long")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each variant (default: %(default)s)")
    parser.add_argument("--steps", default=",".join(f"{ms:g}" for ms in STEPS_MS), help="lengths, in ms, by comma")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the JSON")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cells: list[Cell] = []
    for ms in (float(word) for word in options.steps.split(",")):
        cells += measure(make_work(ms), BUDGETS, options.rounds, options.scale)
        print(render(cells[-len(BUDGETS) :]), flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    raw = options.output / "budget.json"
    raw.write_text(json.dumps({"machine": machine.describe(), "cells": [asdict(cell) for cell in cells]}) + "\n")
    print(f"\n{render(cells)}\n\n{raw}")
    return int(not all(cell.kept and cell.near == "pass" for cell in cells))


if __name__ == "__main__":
    raise SystemExit(main())
