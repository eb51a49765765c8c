"""The argument RUN of all commands: a run's folder, a folder of runs, or nothing, which is the latest run."""

from __future__ import annotations

from typing import Any, Final

RUNS: Final = "runs"
"""The default of the key ``output``, below the working directory."""


def add_run(parser: Any) -> None:
    """Add the argument RUN, as ``run_folder``."""
    parser.add_argument(
        "run_folder",
        metavar="RUN",
        nargs="?",
        default=RUNS,
        help=f"the folder of a run, such as {RUNS}/2026-11-20_10-00-00-ab12, or a folder of runs: then the latest of "
        f"them (default: {RUNS})",
    )
