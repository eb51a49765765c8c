"""``python -m benchmarks.module``: what a module costs, beside hand-written hooks and what people use instead.

The model is the worst case: 40 tiny layers. Each variant takes turns with bare steps, in an order drawn anew.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any, Final

import numpy as np
import torch

from .machine import keep_memory
from .paired import CLOCKS, Blocks, Pairs, measure_blocks
from .stats import Estimate, cost_ratio, difference, ratio
from .table import Bound, at_most, figures, kept, limits, parser, write
from .variants import Variant, variants
from .workloads import TINY_LAYERS, tiny_layers

ROUNDS: Final = 12
"""The intervals of so many rounds were about a tenth of the costs, in the page of 2026-11-26."""
STEPS: Final = 750
"""Steps of a block: a second and more of them, so that the work of several passes is in each."""
FREE: Final = ("never_opened", "paused", "idle")
"""Variants that have to cost nothing."""
SHORT: Final = ("idle", "recording", "resolved", "sinks", "floor", "torch_profiler")
"""Variants of the README's table."""
ONE: Final = 1.005
"""The largest ratio that is written as 1.00."""
OVER_FLOOR: Final = {"recording": 0.25, "resolved": 0.40, "sinks": 0.70}
OVER_FULL_HOOKS: Final = 0.33

INTRO: Final = """\
# What does a module cost?

**Result**: {result}

The training thread's time for each module, forward and backward, beyond bare steps directly before and after, in
{rounds} rounds of blocks in random order. The model is the worst case: 40 layers `Linear(16, 16)` on a batch of 8, a
bare step of {step_ms:.2f} ms, one thread. Intervals hold the median with 95 %.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write. Return 1 where a limit is not kept."""
    options = parser("benchmarks.module", __doc__).parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_memory()
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder:
        chosen = variants(folder)
        size: dict[str, Any] = (
            {"rounds": 2, "steps": 20, "settling": 5} if options.quick else {"rounds": ROUNDS, "steps": STEPS}
        )
        found = measure_blocks(partial(tiny_layers, torch.device("cpu")), chosen, **size)
    bounds = bounds_of(found, chosen)
    write(options, page(found, chosen, bounds), {"pairs": found.pairs, "errors": found.errors})
    return int(any(bound.kept is False for bound in bounds))


def cost(pairs: Pairs, clock: str, modules: int) -> Estimate:
    """Estimate the cost of a module in µs."""
    return difference(pairs[clock]["own"], pairs[clock]["bare"], per=1e3 * modules)


def over(own: Pairs, other: Pairs) -> Estimate:
    """Estimate the cost of a variant over that of another one, each beyond the bare steps beside it."""
    costs = [np.asarray(pairs["wall"]["own"]) - np.asarray(pairs["wall"]["bare"]) for pairs in (own, other)]
    return cost_ratio(costs[0], costs[1], np.zeros(len(costs[0])))


def cost_rows(found: Blocks, chosen: Sequence[Variant], modules: int) -> list[tuple[str, ...]]:
    """Return the rows of the table: by the wall clock, and by the thread's processor time."""
    rows: list[tuple[str, ...]] = []
    for variant in chosen:
        if variant.name in found.errors:
            rows.append((variant.label, found.errors[variant.name], "", ""))
        elif found.pairs[variant.name]["wall"]["own"]:
            wall, processor = (cost(found.pairs[variant.name], clock, modules) for clock in CLOCKS)
            rows.append(
                (variant.label, f"{wall.value:.2f}", f"{wall.low:.2f}, {wall.high:.2f}", f"{processor.value:.2f}")
            )
    return rows


def bounds_of(found: Blocks, chosen: Sequence[Variant]) -> list[Bound]:
    """Compare with every limit."""
    labels = {variant.name: variant.label.removeprefix("autoprof, ") for variant in chosen}
    pairs = found.pairs
    bounds = [
        at_most(f"{labels[name]}, over the floor", limit, over(pairs[name], pairs["floor"]), unit=" ×")
        for name, limit in OVER_FLOOR.items()
    ]
    full = over(pairs["resolved"], pairs["full_backward_hook"])
    bounds.append(
        at_most(f"{labels['resolved']}, over full backward hooks", round(OVER_FULL_HOOKS, 2), full, unit=" ×")
    )
    for name in FREE:
        one = ratio(pairs[name]["wall"]["own"], pairs[name]["wall"]["bare"])
        bounds.append(at_most(f"{labels[name]}, over bare", ONE, one, digits=3, unit=" ×"))
    return bounds


def page(found: Blocks, chosen: Sequence[Variant], bounds: Sequence[Bound]) -> list[str]:
    """Return the page."""
    bare_ms = median(one for pairs in found.pairs.values() for one in pairs["wall"]["bare"]) / 1e6
    marks, sinks = (cost(found.pairs[name], "wall", TINY_LAYERS).value for name in ("recording", "sinks"))
    floor = cost(found.pairs["floor"], "wall", TINY_LAYERS).value
    result = (
        f"{marks:.2f} µs for the marks of a module, {sinks:.2f} with all default sinks; hand-written hooks {floor:.2f}"
    )
    short = [variant for variant in chosen if variant.name in SHORT]
    header = ("", "µs per module", "95 % interval", "processor time")
    return [
        INTRO.format(result=f"{result}; {kept(bounds)}", rounds=found.rounds, step_ms=bare_ms),
        *figures("cost", header, cost_rows(found, chosen, TINY_LAYERS)),
        "",
        "## In short",
        "",
        *figures("short", header[:3], [row[:3] for row in cost_rows(found, short, TINY_LAYERS)]),
        "",
        "## Which limits are kept?",
        "",
        *limits(bounds),
    ]


if __name__ == "__main__":
    sys.exit(main())
