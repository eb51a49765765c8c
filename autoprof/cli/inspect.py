"""``autoprof inspect``: what a log says, whoever wrote it."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "inspect",
        help="read training logs of any tool: a table, and a figure",
        description=(
            "Read logs (JSON lines, Trainer, Accelerate, DeepSpeed, Megatron, mmengine, detectron2, fairseq, nanoGPT, "
            "torchtitan, Lightning CSV, autoprof, any text with names and numbers), print a table and draw a figure."
        ),
    )
    parser.add_argument(
        "logs", nargs="+", metavar="LOG", help="a file, a folder, or a pattern such as 'runs/*/log.txt'"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the figure to this file (.png, .svg, .pdf)")
    parser.add_argument(
        "--format", choices=("png", "svg", "pdf"), help="of the figure; without -o it is training_metrics.FORMAT"
    )
    parser.add_argument("--x", choices=("step", "time", "tokens"), default="step", help="the axis of the figure")
    parser.add_argument("--smooth", type=int, metavar="N", help="records of the moving average; 1 for none")
    parser.add_argument("--pattern", metavar="REGEX", help="your own regular expression, with named groups")
    parser.add_argument("--reader", metavar="KIND", help="the kind of log, where the guess is wrong (docs/logs.md)")
    parser.add_argument("--csv", metavar="FILE", help="write the table to this file")
    parser.add_argument("--show", action="store_true", help="open the figure in a window")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ..errors import AutoprofError
    from ..logs import load_logs, plot_metrics
    from ..logs.report import render_report

    output = _output(arguments)
    if arguments.smooth is not None and arguments.smooth < 1:
        raise AutoprofError(f"--smooth: {arguments.smooth} is no number of records; allowed: 1 or more")
    df = load_logs(arguments.logs, pattern=arguments.pattern, reader=arguments.reader)
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    print("\n".join(render_report(df, width=shutil.get_terminal_size().columns, encoding=encoding)))
    if arguments.csv is not None:
        try:
            df.to_csv(arguments.csv, index=False)
        except OSError as error:
            raise AutoprofError(
                f"{arguments.csv}: the table cannot be written: {error.strerror}; allowed: a place that can be"
            ) from error
    if output is not None or arguments.show:
        figure = plot_metrics(df, output, x=arguments.x, smooth=arguments.smooth, show=arguments.show)
        notes: list[str] = getattr(figure, "notes", [])
        print("\n".join([f"figure: {output}", *notes] if output is not None else notes))
    return 0


def _output(arguments: argparse.Namespace) -> str | None:
    """Return where the figure goes, None for nowhere."""
    from ..errors import AutoprofError

    if arguments.output is None:
        return None if arguments.format is None else f"training_metrics.{arguments.format}"
    path = Path(arguments.output)
    if arguments.format is None or path.suffix.lstrip(".").lower() == arguments.format:
        return str(path)
    if path.suffix.lstrip(".").lower() in ("png", "svg", "pdf"):
        raise AutoprofError(
            f"-o: {path} is no {arguments.format}; allowed: a name that ends in .{arguments.format}, or no --format"
        )
    return f"{path}.{arguments.format}"
