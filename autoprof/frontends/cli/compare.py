"""``autoprof compare``: compare one run, or several, with others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...errors import OutputError
from ._common import RUNS, add_command, print_json, print_lines, terminal_width

_EPILOG = """
With a limit (--fail-over 5%) the exit status is 1 if the whole step, the throughput, a phase or a row is proven to be
slower by more than that: if a one-sided test rejects "at most 5 % slower" at the 5 % level, adjusted for all rows
(Holm). Status 2 is an error of usage or input.
"""


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "compare",
        help="compare one run, or several, with others: slower and faster modules, with confidence intervals",
        description="Compare saved runs by module and phase: faster, slower, same, or inconclusive.",
        epilog=_EPILOG,
        examples={
            "autoprof compare": "the latest run in the folder runs with the one before",
            "autoprof compare runs/before runs/after": "two runs",
            "autoprof compare --a runs/main-* --b runs/pr-* --fail-over 5%": "several runs a side, for CI",
            "autoprof compare runs/before runs/after --json": "for a program",
        },
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="two runs, A then B; without B the latest run in runs, without A the one before",
    )
    parser.add_argument("--a", nargs="+", metavar="RUN", help="several runs, or patterns of runs, as A")
    parser.add_argument("--b", nargs="+", metavar="RUN", help="several runs, or patterns of runs, as B")
    parser.add_argument(
        "--margin", type=_fraction, default=0.02, metavar="2%", help="smaller changes are the same (2%%)"
    )
    parser.add_argument("--fail-over", type=_fraction, metavar="5%", help="exit with 1 if slower by more than this")
    parser.add_argument(
        "--min-share",
        type=_fraction,
        default=0.01,
        metavar="1%",
        help="exclude rows below this share of the step (1%%)",
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


def _fraction(text: str) -> float:
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction; allowed: a number such as 5% or 0.05") from None


def run(arguments: argparse.Namespace) -> int:
    """Return 1 only for a slow-down beyond the limit."""
    from ..compare import compare_runs, render_comparison

    a, b = _sides(arguments)
    comparison = compare_runs(
        a, b, margin=arguments.margin, fail_over=arguments.fail_over, min_share=arguments.min_share
    )
    if arguments.json:
        print_json(comparison.to_dict())
    else:
        print_lines(render_comparison(comparison, width=terminal_width()))
    return 1 if comparison.over_limit() else 0


def _sides(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the runs of both sides: B is the latest run and A the one before where they are not named."""
    from ...base.storage.runs import latest_runs

    runs: list[str] = arguments.runs
    if arguments.a is not None and arguments.b is not None and not runs:
        return arguments.a, arguments.b
    if len(runs) > 2 or arguments.a is not None or arguments.b is not None:
        raise OutputError(
            "compare: two sides are needed; allowed: RUN_A RUN_B, RUN_A alone (B is the latest run), nothing (the two "
            "latest runs), or --a RUN… --b RUN…"
        )
    if len(runs) == 2:
        return runs[:1], runs[1:]
    latest = [str(path) for path in latest_runs(Path(RUNS), 2 - len(runs))]
    return (runs or latest[1:]), latest[:1]
