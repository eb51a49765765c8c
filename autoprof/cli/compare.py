"""``autoprof compare``: hold one run, or several, against others."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import traceback
from typing import TYPE_CHECKING, Any

from ..errors import AutoprofError, OutputError

if TYPE_CHECKING:
    from ..compare import Comparison

_EPILOG = """
A limit (--fail-over 5%) fails, with status 1, when the whole step, the throughput, a phase or a row is slower
by more than that: when the one-sided test of "at most 5 % slower" is rejected at 5 %, adjusted for all rows
(Holm). With --phase or --name the chosen rows count and the whole step does not. What may be slower by more but
is not proven to be fails with --strict only. Status 2 is an error of usage or input.
"""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare",
        help="hold one run, or several, against others: what became slower, and how sure that is",
        description="Compare saved runs by module and phase: faster, slower, same, or inconclusive.",
        epilog=_EPILOG,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="two runs: A, then B")
    parser.add_argument("--a", nargs="+", metavar="RUN", help="several runs, or patterns of runs, as A")
    parser.add_argument("--b", nargs="+", metavar="RUN", help="several runs, or patterns of runs, as B")
    parser.add_argument("--margin", type=_fraction, default=0.02, metavar="2%", help="what counts as the same (2%%)")
    parser.add_argument("--fail-over", type=_fraction, metavar="5%", help="exit with 1 if slower by more than this")
    parser.add_argument("--strict", action="store_true", help="fail also where more than that cannot be ruled out")
    parser.add_argument(
        "--min-share",
        type=_fraction,
        default=0.01,
        metavar="1%",
        help="leave out rows below this share of the step (1%%)",
    )
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", help="only this phase; may be repeated"
    )
    parser.add_argument("--name", metavar="REGEX", help="only names in which this is found")
    parser.add_argument("--rank", type=int, metavar="N", help="only this rank (all of them)")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="of what is printed")
    parser.add_argument(
        "--top", type=int, default=40, metavar="N", help="rows shown in text beside those that differ (40)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="a picture of it: .png, .svg or .pdf")
    parser.set_defaults(run=_run)


def _fraction(text: str) -> float:
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no fraction; allowed: a number such as 5% or 0.05") from None


def _run(arguments: argparse.Namespace) -> int:
    """Return 1 for what is slower and for nothing else: not for a failure of ours either."""
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
        plot_comparison(comparison, arguments.output)
        print(f"{arguments.output} written", file=sys.stderr)
    return 1 if comparison.over_limit(strict=arguments.strict) else 0


def _sides(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    if arguments.a is not None and arguments.b is not None and not arguments.runs:
        return arguments.a, arguments.b
    if len(arguments.runs) == 2 and arguments.a is None and arguments.b is None:
        return [arguments.runs[0]], [arguments.runs[1]]
    raise OutputError("compare: which runs is not clear; allowed: RUN_A RUN_B, or --a RUN… --b RUN…")


def _printed(comparison: Comparison, arguments: argparse.Namespace) -> list[str]:
    from ..compare import render_comparison, render_markdown

    if arguments.format == "json":
        return [json.dumps(comparison.to_dict(), indent=1, ensure_ascii=False)]
    if arguments.format == "markdown":
        return render_markdown(comparison, strict=arguments.strict)
    width = shutil.get_terminal_size().columns
    encoding = sys.stdout.encoding or "ascii"
    return render_comparison(comparison, width=width, top=arguments.top, strict=arguments.strict, encoding=encoding)
