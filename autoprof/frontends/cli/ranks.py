"""``autoprof ranks``: compare all ranks of a saved run, also of a thousand ranks, from their records."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...errors import OutputError
from ._common import add_command, add_run, print_json, print_lines, terminal_width


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "ranks",
        help="compare all ranks of a run from their records: which one is slow, and where",
        description=(
            "Compare the ranks of a saved run by their own work, in the last steps that all of them have recorded. "
            "Ranks whose files are missing or damaged are left out and listed."
        ),
        examples={
            "autoprof ranks": "the latest run in the folder runs",
            "autoprof ranks runs/a --json": "the times of each rank, for a program",
        },
    )
    add_run(parser)
    parser.add_argument("--top", type=int, default=10, metavar="N", help="ranks shown; 0 for all (default: 10)")
    parser.add_argument("--json", action="store_true", help="print the comparison, all ranks and the list as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ...ranks import compare_ranks, read_folder
    from ...reports.ranks_text import ranks_to_dict, render_ranks

    if arguments.top < 0:
        raise OutputError(f"--top: {arguments.top} is not a number of ranks; allowed: 0 (all), 1, 2, …")
    found = read_folder(_folder(arguments.run_folder))
    comparison = compare_ranks(found.records, world_size=found.world_size)
    if arguments.json:
        print_json(ranks_to_dict(found, comparison))
        return 0
    print_lines(render_ranks(found, comparison, width=terminal_width(), top=arguments.top))
    return 0


def _folder(given: str) -> Path:
    """Return the folder of a run, or the latest run in it; rank 0 and its run.json may be on another machine."""
    from ...base.storage.runs import find_run

    has_ranks = any(Path(given).glob("rank*/steps.jsonl"))
    return Path(given) if has_ranks else Path(find_run(given))
