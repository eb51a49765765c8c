"""``python -m benchmarks.always_on``: each figure with its limit, and whether it is met.

All variants of a row take turns with bare runs. Rows: 1 to 3 the cost of a mark, of figures and of sinks over
hand-written hooks; 4 a GPT-2 with one line; 5 the same beside busy processes; 6 overhead by length of step; 7 the
demo; 8 whole processes; 9 states that have to cost nothing; 10 the longest steps; 11 memory; 12 lines; 13 many modules.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from .. import machine
from ..options import RESULTS
from ..run import print_line
from ..table import machine_lines, verdict_lines
from ..verdict import Bound
from .paired import CLOCKS
from .rows import NUMBERS, Bench
from .scale import DEFAULT, FULL, QUICK, Scale

BUSY: Final = 0.5
"""The load a core from which a machine counts as busy."""


def measure(scale: Scale, rows: Sequence[int] = NUMBERS, clock: str = "wall", threads: int = 1) -> dict[str, Any]:
    """Measure the rows; return the machine, the samples and the bounds as plain JSON types."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    results = {"machine": machine.describe(), "options": {"clock": clock}}
    bench = Bench(scale, frozenset(rows), clock, threads, print_line)
    results |= bench.measure()
    print_line("")
    return results


def render(results: dict[str, Any]) -> str:
    """Return the table."""
    bounds = sorted((Bound(**bound) for bound in results["bounds"]), key=lambda bound: int(bound.subject.split()[0]))
    machine_now = results["machine"]
    lines = [*machine_lines(results), f"Scale: {results['scale']}."]
    if machine_now["load"] and machine_now["load"][0] > BUSY * machine_now["usable_cores"]:
        lines += ["Other programs kept the machine busy when this began: only --clock cpu says something."]
    lines += ["", *results["tables"], *verdict_lines(bounds)]
    return "\n".join(lines)


def save(results: dict[str, Any], folder: Path) -> list[Path]:
    """Write the table and the samples; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    raw, table = folder / "always_on.json", folder / "always_on.md"
    raw.write_text(json.dumps(results) + "\n", encoding="utf-8")
    table.write_text(f"```\n{render(results)}\n```\n", encoding="utf-8")
    return [raw, table]


def main(arguments: list[str] | None = None, *, keep: bool = False) -> int:
    """Measure, print, write. Return 1 when a limit is missed. ``keep`` has this process keep freed memory."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.always_on", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a look in about two minutes: no figure of it counts")
    size.add_argument(
        "--full", action="store_true", help="more rounds, and memory to step 1,000,000: over an hour, not half of one"
    )
    parser.add_argument("--rows", default=",".join(map(str, NUMBERS)), help="by comma (default: %(default)s)")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="the clock of the limits of rows 1 to 4, 6, 7 and 9; both are in the JSON",
    )
    parser.add_argument("--threads", type=int, default=1, help="torch's CPU threads (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        rows = [int(word) for word in options.rows.split(",")]
    except ValueError:
        rows = []
    if not rows or not set(rows) <= set(NUMBERS):
        parser.error(f"--rows: {options.rows!r}; allowed: numbers from 1 to {NUMBERS[-1]}, by comma")
    if keep:
        machine.keep_memory()
    scale = QUICK if options.quick else FULL if options.full else DEFAULT
    results = measure(scale, rows, options.clock, options.threads)
    print(render(results))
    print("", *save(results, options.output), sep="\n")
    return int(any(bound["passed"] is False for bound in results["bounds"]))


if __name__ == "__main__":
    sys.exit(main(keep=True))
