"""``autoprof inspect``: read the logs of training runs, print a report and draw a figure."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from math import inf
from pathlib import Path
from typing import Any

from .._names import plain_cell
from ..errors import AutoprofError, OutputError
from ._help import add_command
from ._runs import RUNS


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
            "autoprof inspect train.log --json": "the table, for a program",
            "autoprof inspect train.log --follow": "the report of a log that grows, again after each change",
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
        "--format",
        choices=("png", "svg", "pdf"),
        help="format of the figure; without -o the file is training_metrics.FORMAT",
    )
    parser.add_argument(
        "--plot",
        action="append",
        default=[],
        metavar="NAME",
        help="draw only this plot, as wide as one column of a paper; may be repeated (loss, 'step time', …)",
    )
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="NAME",
        help="draw only this column of the log, whatever its name; may be repeated",
    )
    parser.add_argument("--x", choices=("step", "time", "tokens"), default="step", help="x axis of the figure (step)")
    parser.add_argument(
        "--smooth", type=int, metavar="N", help="records of the moving average; 1: none (default: a hundredth of all)"
    )
    parser.add_argument(
        "--pattern", metavar="REGEX", help="read your own format: a regular expression with named groups"
    )
    parser.add_argument("--reader", metavar="FORMAT", help="log format, if detection fails (list: docs/logs.md)")
    parser.add_argument("--csv", metavar="FILE", help="write the table to this file")
    parser.add_argument("--json", action="store_true", help="print the numbers of each column as JSON")
    parser.add_argument("--show", action="store_true", help="open the figure in a window")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="read the logs again whenever they have changed, until Ctrl-C; piped, each change is one line",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from .._reports.figures import check_format
    from ..logs import load_logs
    from ..logs.figure import check_plots
    from ..logs.inputs import STANDARD_INPUT
    from ..logs.report import render_report

    output = _figure_path(arguments)
    if output is not None:  # before the logs are read, which may take a while
        check_format(Path(output))
    check_plots(arguments.plot)
    if arguments.smooth is not None and arguments.smooth < 1:
        raise AutoprofError(f"--smooth: {arguments.smooth} is not a number of records; allowed: 1 or more")
    options = {"pattern": arguments.pattern, "reader": arguments.reader}
    if arguments.follow:
        return _follow(arguments, output, options)
    if str(STANDARD_INPUT) in arguments.logs and sys.stdin.isatty():
        print("reading standard input; Ctrl-D ends it", file=sys.stderr)
    df = load_logs(arguments.logs or _latest(), **options)
    if arguments.json:
        print(json.dumps(_numbers(df), indent=1, ensure_ascii=False))
    else:
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        print("\n".join(render_report(df, width=shutil.get_terminal_size().columns, encoding=encoding)))
    lines = _write_files(df, arguments, output)
    if lines:
        print("\n".join(lines), file=sys.stderr if arguments.json else sys.stdout)
    return 0


def _follow(arguments: argparse.Namespace, output: str | None, options: dict[str, Any]) -> int:
    """Show the logs whenever they have changed."""
    from ..logs.follow import LogFollower
    from ._follow_logs import show_readings

    if arguments.show:
        raise AutoprofError("--show: a window cannot follow a log; allowed: --follow with -o FILE, or --show alone")

    def write_files(df: Any) -> list[str]:
        try:
            return _write_files(df, arguments, output)[:1]
        except OutputError:
            raise
        except AutoprofError:
            return [f"figure: nothing to draw in {output} so far"]

    follower = LogFollower(lambda: arguments.logs or _latest(), options=options)
    show_readings(
        follower.readings(),
        write_files,
        (lambda df: json.dumps(_numbers(df), ensure_ascii=False)) if arguments.json else None,
    )
    return 0


def _write_files(df: Any, arguments: argparse.Namespace, output: str | None) -> list[str]:
    """Write the table and the figure that were asked for; return lines about the figure."""
    from ..logs import plot_metrics

    if arguments.csv is not None:
        try:
            _plain_cells(df).to_csv(arguments.csv, index=False)
        except OSError as error:
            reason = f"cannot be written: {error.strerror}; allowed: a file in a writable folder"
            raise OutputError(f"--csv: {arguments.csv} {reason}") from error
    if output is None and not arguments.show:
        return []
    figure = plot_metrics(df, output, x=arguments.x, smooth=arguments.smooth, plots=arguments.plot, show=arguments.show)
    notes: list[str] = getattr(figure, "notes", [])
    return [f"figure: {output}", *notes] if output is not None else notes


def _plain_cells(df: Any) -> Any:
    """Return the table with texts that no spreadsheet takes for a formula."""
    texts = df.select_dtypes(exclude=["number", "bool"]).columns
    cells = {name: df[name].map(lambda cell: plain_cell(cell) if isinstance(cell, str) else cell) for name in texts}
    return df.assign(**cells).rename(columns=lambda name: plain_cell(str(name)))


def _latest() -> list[str]:
    """Return the records of the latest run."""
    from .._storage.records import record_files
    from .._storage.runs import find_run

    run = find_run(RUNS)
    records = sorted(run.glob("rank*/steps.jsonl"))
    found = [str(part) for path in records for part in record_files(path)]
    if not found:
        raise OutputError(f"{run}: has no records (the sink jsonl writes them); allowed: LOG, a log file")
    return found


def _numbers(df: Any) -> dict[str, Any]:
    """Return the number of rows, and for each column of numbers how many there are and which."""
    columns = {}
    for name in df.select_dtypes("number").columns:
        known = df[name].replace([inf, -inf], None).dropna()
        if len(known):
            ends = {"first": known.iloc[0], "last": known.iloc[-1], "min": known.min(), "max": known.max()}
            numbers = {key: float(number) for key, number in {**ends, "mean": known.mean()}.items()}
            columns[str(name)] = {"count": len(known), **numbers}
    return {"rows": len(df), "columns": columns}


def _figure_path(arguments: argparse.Namespace) -> str | None:
    """Return the file of the figure; None without ``-o``, ``--format``, ``--plot`` and ``--column``."""
    if arguments.output is None:
        return (
            f"training_metrics.{arguments.format or 'png'}"
            if arguments.format or arguments.plot or arguments.column
            else None
        )
    path = Path(arguments.output)
    suffix = path.suffix.lstrip(".").lower()
    if arguments.format is None or suffix == arguments.format:
        return str(path)
    if suffix in ("png", "svg", "pdf"):
        raise AutoprofError(
            f"-o: {path} does not end in .{arguments.format}, the --format; allowed: a file name that does, or no "
            "--format"
        )
    return f"{path}.{arguments.format}"
