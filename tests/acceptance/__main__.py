"""``python -m tests.acceptance``: the table of programs, right or wrong, and on request a page."""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

from benchmarks.machine import describe
from benchmarks.processes import load

from .registry import SECTIONS, Program, programs
from .report import render_page, render_result, render_totals
from .run import LIMIT_S, Result, run_all


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.acceptance", description="Compare the default report with programs' own clocks."
    )
    parser.add_argument("--only", metavar="PATTERN", help="programs whose name or sentence the expression finds")
    parser.add_argument("--section", choices=SECTIONS, action="append", help="programs of a section")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time (default: %(default)s)")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds a program may take (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="print the programs and run none")
    parser.add_argument("--show", action="store_true", help="print each program's output, with the report")
    parser.add_argument("--minutes", type=float, help="begin no further program after so many, in random order")
    parser.add_argument("--part", choices=PARTS, help="a part of the programs, as the evidence has them")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument("--json", type=Path, help="write every comparison to this file")
    given = parser.parse_args(arguments)
    if given.jobs < 1:
        parser.error("--jobs: must be at least 1")
    return given


PARTS: Final = {
    "times": ("recompute", "targets", "steps", "excluded", "stages", "throughput"),
    "causes": ("findings", "defects", "healthy", "report", "random"),
    "busy": tuple(SECTIONS),
}
"""The sections of each part. Of ``busy`` each fourth program runs, two at a time, beside two busy processes."""
BUSY_PROCESSES: Final = 2
BUSY_EACH: Final = 4


def choose(options: argparse.Namespace) -> list[Program]:
    """Return the programs that the command line selects."""
    chosen = list(programs().values())
    if options.section:
        chosen = [entry for entry in chosen if entry.section in options.section]
    if options.part:
        chosen = [entry for entry in chosen if entry.section in PARTS[options.part]]
    if options.only:
        chosen = [entry for entry in chosen if re.search(options.only, f"{entry.name} {entry.sentence}", re.I)]
    if options.minutes is not None:
        Random(0).shuffle(chosen)
    return chosen[:: BUSY_EACH if options.part == "busy" else 1]


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 when a program is wrong, 2 when none was chosen."""
    options = parse(arguments)
    chosen = choose(options)
    if not chosen:
        print("no program has such a name; --list prints all of them")
        return 2
    if options.list:
        for entry in chosen:
            print(f"{entry.section:10} {entry.name:40} {entry.sentence}")
        return 0
    missing = [entry for entry in chosen if entry.missing]
    until_s = inf if options.minutes is None else monotonic() + 60 * options.minutes
    machine = describe()
    results: list[Result] = []
    is_busy = options.part == "busy"
    with load(BUSY_PROCESSES if is_busy else 0):
        present = [entry for entry in chosen if entry not in missing]
        in_time = (entry for entry in present if monotonic() < until_s)
        for result in run_all(in_time, 2 if is_busy else options.jobs, options.limit):
            results.append(result)
            if options.show:
                print(result.printed)
            print(render_result(result), flush=True)
            if options.json:
                _write(options.json, machine, results)
    print(render_totals(results, missing))
    if options.page:
        page = render_page(results, missing, is_busy=is_busy, left=len(present) - len(results))
        options.page.write_text(page, encoding="utf-8")
    return int(any(result.verdict == "wrong" for result in results))


def _write(path: Path, machine: Mapping[str, Any], results: Sequence[Result]) -> None:
    raw = {"machine": machine, "results": [result.to_dict() for result in results]}
    path.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
