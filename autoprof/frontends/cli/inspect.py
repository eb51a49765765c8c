"""``autoprof inspect``: read the logs of training runs, print a report and draw a figure."""

from __future__ import annotations

import argparse
import json
import sys
from math import inf
from pathlib import Path
from typing import Any

from ...errors import AutoprofError, OutputError
from ._common import RUNS, add_command, print_json, print_lines, terminal_width


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "inspect",
        help="read training logs of any tool: print a report, draw a figure",
        description=(
            "Read training logs (JSON lines, CSV, the logs of common training tools, any text with names and numbers; "
            "docs/logs.md lists the formats), print a report and draw a figure."
        ),
        examples={
            "autoprof inspect": "the records of the latest run in the folder runs",
            "autoprof inspect train.log 'logs/*.csv' -o curves.png": "logs of any tool in one figure",
            r"autoprof inspect train.log --pattern 'it (?P<step>\d+) loss (?P<loss>\S+)'": "a format of your own",
            "autoprof inspect train.log --plot loss -o loss.pdf": "one plot, for a paper",
            "autoprof inspect train.log --json": "the numbers of each column, for a program",
            "watch -n 10 autoprof inspect train.log": "a log that grows",
            "cat train.log.1 train.log | autoprof inspect -": "standard input",
        },
    )
    parser.add_argument(
        "logs",
        nargs="*",
        metavar="LOG",
        help=(
            "a file, a folder, a pattern such as 'runs/*/log.txt', or - for standard input "
            f"(default: the latest run in {RUNS})"
        ),
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the figure to this file (.png, .svg, .pdf)")
    parser.add_argument(
        "--plot",
        action="append",
        default=[],
        metavar="NAME",
        help="draw only this plot or this column of the log (loss, 'step time', …); may be repeated",
    )
    parser.add_argument(
        "--smooth", type=int, metavar="N", help="records of the moving average; 1: none (default: a hundredth of all)"
    )
    parser.add_argument(
        "--pattern", metavar="REGEX", help="read your own format: a regular expression with named groups"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers of each column as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ...logs import load_logs, plot_metrics
    from ...logs.report import render_report
    from ...reports.figures import check_format

    output = arguments.output or ("training_metrics.png" if arguments.plot else None)
    if output is not None:  # before the logs are read, which may take a while
        check_format(Path(output))
    if arguments.smooth is not None and arguments.smooth < 1:
        raise AutoprofError(f"--smooth: {arguments.smooth} is not a number of records; allowed: 1 or more")
    df = load_logs(arguments.logs or _latest(), pattern=arguments.pattern)
    if arguments.json:
        numbers = df.select_dtypes("number").astype(float)
        numbers = numbers.where(numbers.abs() < inf)
        columns = json.loads(numbers.describe().to_json()) if len(numbers.columns) else {}
        print_json({"rows": len(df), "columns": columns})
    else:
        print_lines(render_report(df, width=terminal_width()))
    if output is not None:
        figure = plot_metrics(df, output, smooth=arguments.smooth, plots=arguments.plot)
        notes: list[str] = getattr(figure, "notes", [])
        print("\n".join([f"figure: {output}", *notes]), file=sys.stderr if arguments.json else sys.stdout)
    return 0


def _latest() -> list[str]:
    """Return the records of the latest run."""
    from ...base.storage.records import record_files
    from ...base.storage.runs import find_run

    run = find_run(RUNS)
    records = sorted(run.glob("rank*/steps.jsonl"))
    found = [str(part) for path in records for part in record_files(path)]
    if not found:
        raise OutputError(f"{run}: has no records (the sink jsonl writes them); allowed: LOG, a log file")
    return found
