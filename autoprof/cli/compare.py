"""``autoprof compare``: compare one run, or several, with others."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AutoprofError, OutputError
from ._help import add_command
from ._runs import RUNS

if TYPE_CHECKING:
    from ..compare import Comparison

_EPILOG = """
With a limit (--fail-over 5%) the exit status is 1 if the whole step, the throughput, a phase or a row is proven to be
slower by more than that: if a one-sided test rejects "at most 5 % slower" at the 5 % level, adjusted for all rows
(Holm). With --phase or --name only the selected rows are tested, not the whole step. Changes that may be slower by
more, but are not proven to be, fail with --strict only. Status 2 is an error of usage or input.
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
            "autoprof compare runs/before runs/after -o change.pdf --columns 1": "a figure for a paper",
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
    parser.add_argument("--strict", action="store_true", help="fail also if a larger slow-down is possible")
    parser.add_argument(
        "--min-share",
        type=_fraction,
        default=0.01,
        metavar="1%",
        help="exclude rows below this share of the step (1%%)",
    )
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", help="only this phase; may be repeated"
    )
    parser.add_argument("--name", metavar="REGEX", help="only names that contain a match")
    parser.add_argument("--rank", type=int, metavar="N", help="only this rank (default: all)")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="format of the output")
    parser.add_argument(
        "--top", type=int, default=40, metavar="N", help="rows shown in text besides those that differ (40)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="also draw a figure: .png, .svg or .pdf")
    parser.add_argument(
        "--columns",
        type=int,
        choices=(1, 2),
        default=2,
        help="width of the figure in columns of a paper: 3.5 or 7.2 inches (2)",
    )
    parser.set_defaults(run=_run)


def _fraction(text: str) -> float:
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction; allowed: a number such as 5% or 0.05") from None


def _run(arguments: argparse.Namespace) -> int:
    """Return 1 only for a slow-down beyond the limit; a failure of autoprof's own returns 2."""
    try:
        return _compare(arguments)
    except (AutoprofError, BrokenPipeError):
        raise
    except Exception:
        traceback.print_exc()
        return 2


def _compare(arguments: argparse.Namespace) -> int:
    from ..compare import compare_runs, plot_comparison

    a, b = _sides(arguments)
    comparison = compare_runs(
        a,
        b,
        margin=arguments.margin,
        fail_over=arguments.fail_over,
        min_share=arguments.min_share,
        phases=arguments.phase,
        name=arguments.name,
        rank=arguments.rank,
    )
    print("\n".join(_printed(comparison, arguments)))
    if arguments.output is not None:
        plot_comparison(comparison, arguments.output, columns=arguments.columns)
        print(f"{arguments.output} written", file=sys.stderr)
    return 1 if comparison.over_limit(strict=arguments.strict) else 0


def _sides(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    if arguments.a is not None and arguments.b is not None and not arguments.runs:
        return arguments.a, arguments.b
    if len(arguments.runs) == 2 and arguments.a is None and arguments.b is None:
        return [arguments.runs[0]], [arguments.runs[1]]
    if len(arguments.runs) < 2 and arguments.a is None and arguments.b is None:
        return _with_latest(arguments.runs)
    raise OutputError(
        "compare: two sides are needed; allowed: RUN_A RUN_B, RUN_A alone (B is the latest run), nothing (the two "
        "latest runs), or --a RUN… --b RUN…"
    )


def _with_latest(given: list[str]) -> tuple[list[str], list[str]]:
    """Complete the sides: B is the latest run, A the given one or the one before."""
    from .._storage.runs import latest_runs

    if not given:
        b, a = latest_runs(Path(RUNS), 2)
        return [str(a)], [str(b)]
    (latest,) = latest_runs(Path(RUNS), 1)
    return given, [str(latest)]


def _printed(comparison: Comparison, arguments: argparse.Namespace) -> list[str]:
    from ..compare import render_comparison, render_markdown

    if arguments.format == "json":
        return [json.dumps(comparison.to_dict(), indent=1, ensure_ascii=False)]
    if arguments.format == "markdown":
        return render_markdown(comparison, strict=arguments.strict)
    width = shutil.get_terminal_size().columns
    encoding = sys.stdout.encoding or "ascii"
    return render_comparison(comparison, width=width, top=arguments.top, strict=arguments.strict, encoding=encoding)
