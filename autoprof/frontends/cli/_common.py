"""The parts that commands share: the form of a help text, the argument RUN, and the standard output."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ...errors import OutputError

if TYPE_CHECKING:
    from ...base.storage.runs import Run

RUNS: Final = "runs"
"""The default of the key ``output``, below the working directory."""
EXIT_STATUS: Final = {
    0: "done",
    1: "the answer is no: compare --fail-over proves a slow-down, doctor finds a danger, times of a run do not add up",
    2: "wrong usage or input; the message names it and the allowed values",
    130: "ended by Ctrl-C",
    141: "the reader of the output closed the pipe",
}
"""The exit statuses of all commands but ``run``, which has that of the script."""


def add_command(
    commands: Any, name: str, *, description: str, epilog: str = "", examples: dict[str, str], **texts: Any
) -> Any:
    """Add a command's parser; each of ``examples`` is a command line with its effect. ``texts`` are argparse's own."""
    lines = [part for example, effect in examples.items() for part in (f"  {example}", f"      {effect}")]
    paragraphs = [textwrap.fill(" ".join(epilog.split()), 78), "\n".join(["examples:", *lines])]
    return commands.add_parser(
        name,
        description=textwrap.fill(description, 78),
        epilog="\n\n".join(filter(None, paragraphs)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **texts,
    )


def exit_status_text() -> str:
    """Return the exit statuses as a paragraph of the help."""
    lines = [
        textwrap.fill(meaning, 76, initial_indent=f"  {status:<5}", subsequent_indent=" " * 7)
        for status, meaning in EXIT_STATUS.items()
    ]
    return "\n".join(["exit status:", *lines, "  Of autoprof run: that of the program."])


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


def check_rank(run: Run, rank: int | None) -> None:
    """Raise ``OutputError`` where a run has no records of this rank."""
    if rank is not None and rank not in run.ranks:
        known = ", ".join(map(str, run.ranks)) or "none"
        raise OutputError(f"--rank: {run.path} has no records of rank {rank}; it has: {known}")


def print_json(data: Any) -> None:
    """Print data as indented JSON."""
    print(json.dumps(data, indent=1, ensure_ascii=False))


def terminal_width(elsewhere: int = 80) -> int:
    """Return the width of the terminal in cells; of a file or a pipe it is ``elsewhere``."""
    return shutil.get_terminal_size((elsewhere, 24)).columns


def print_lines(lines: Iterable[str]) -> None:
    """Print lines in the characters of the standard output."""
    from ...reports.text import in_encoding  # rich takes a moment to load

    print(in_encoding("\n".join(lines), getattr(sys.stdout, "encoding", None) or "ascii"))
