"""``autoprof report``: write a saved run as one HTML page, and open it."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from pathlib import Path
from typing import Any

from ._common import add_command, add_run, check_rank


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "report",
        help="write the latest or another saved run as one HTML page, and open it",
        description=(
            "Write a saved run as one HTML page that needs no network: the verdict, the module tree by phase, steps "
            "over time, memory, ranks. A run that was killed is shown from its records."
        ),
        examples={
            "autoprof report": "the latest run in the folder runs",
            "autoprof report runs/a -o a.html --no-open": "on a machine without a display",
        },
    )
    add_run(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default: RUN/report.html)")
    parser.add_argument("--rank", type=int, metavar="N", help="show the steps of this rank (default: the lowest)")
    parser.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="open the page in a browser (default: if the output is a terminal with a display)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ...base.storage.runs import find_run, read_run
    from ...diagnose import saved_summary
    from ...reports.page.page import write_page

    run = read_run(find_run(arguments.run_folder))
    check_rank(run, arguments.rank)
    summary = saved_summary(run, arguments.rank)
    path = write_page(run, summary, arguments.output, rank=arguments.rank)
    print(path)
    if arguments.open or (arguments.open is None and _has_display()):
        webbrowser.open(path.resolve().as_uri())
    return 0


def _has_display() -> bool:
    """Return whether a browser is likely to open where the user sees it, and not on a remote machine."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
