"""``autoprof show``: print the report of a saved run, or write its tables and figures again from the records."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import OutputError
from ._common import add_command, add_run, check_rank, print_json, print_lines, terminal_width

if TYPE_CHECKING:
    from ...base.storage.runs import Run
    from ...base.summary import Summary
    from ...diagnose import SavedSteps
    from ...sinks import Export


def add(commands: Any) -> None:
    """Add the command; each sink adds the options for its files."""
    parser = add_command(
        commands,
        "show",
        help="print the report of the latest or another saved run, or write its tables and figures again",
        description=(
            "Print the report of a saved run; of a run that was killed, the report of its records. Without RUN, the "
            "latest run in the folder runs. With one of the options for files, write these from the records "
            "instead, whether or not the run had the sink."
        ),
        examples={
            "autoprof show": "the report of the latest run in the folder runs",
            "autoprof show runs/before --full": "every table of one run",
            "autoprof show --trace trace.json --steps 100:110": "a trace of eleven steps, for ui.perfetto.dev",
        },
    )
    add_run(parser)
    parser.add_argument("--full", action="store_true", help="print every table: memory, FLOPs, spread, what if")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, as in summary.json")
    parser.add_argument("--rank", type=int, help="only this rank (default: the summary of rank 0, the files of all)")
    parser.add_argument("--steps", metavar="A:B", help="only steps A to B in the files; either may be left out")
    files = parser.add_argument_group("files")
    for one in _exports():
        files.add_argument(f"--{one.option}", type=Path, metavar="FILE", help=one.help)


def _exports() -> list[Export]:
    """Return the files that sinks can write again; of two with the same option, the built-in one."""
    from ...sinks import SINKS

    found: dict[str, Export] = {}
    for kind in SINKS.parts.values():
        for one in kind.exports:
            if one.option not in ("help", "rank", "steps"):
                found.setdefault(one.option, one)
    return list(found.values())


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ...base.storage.runs import find_run, read_run
    from ...diagnose import saved_summary

    run = read_run(find_run(arguments.run_folder))
    check_rank(run, arguments.rank)
    paths = {one: getattr(arguments, one.option.replace("-", "_")) for one in _exports()}
    wanted = {one: path for one, path in paths.items() if path is not None}
    saved = _saved_steps(run, arguments)
    if wanted and not saved.ranks:
        raise OutputError(f"{run.path}: there are no records to write files from; a run with the sink jsonl has them")
    for one, path in wanted.items():
        one.write(saved, path)
        print(f"{path}: written", file=sys.stderr)
    if not wanted and arguments.json:
        print_json(saved_summary(run, arguments.rank).to_dict())
    elif not wanted and run.summary is None and not run.ranks and (states := _last_states(run)):
        print_lines(states)  # the run was killed and has no records
    elif not wanted:
        print_lines(_report(run, saved_summary(run, arguments.rank), full=arguments.full))
    return 0


def _report(run: Run, summary: Summary, *, full: bool) -> list[str]:
    # Cells of a report on a wider terminal, and of the full one in a file or a pipe: fewer names are cut.
    widest = 120
    from ...reports.short_text import render_short
    from ...reports.summary_text import render_summary

    width, states = min(terminal_width(widest if full else 80), widest), _last_states(run)
    if full:
        return [*states, *render_summary(summary, width=width)]
    return [*states, *render_short(summary, width=width, folder=run.path)]


def _last_states(run: Run) -> list[str]:
    """Return the last state of each rank of a run that was not closed, or in which a step did not end."""
    from ...reports.text import safe, wrap
    from ...session.flight import describe_ranks, last_states

    lines = last_states(run.path, run.info["world_size"])
    if not lines:
        return []
    width = terminal_width()
    verdict, table = describe_ranks(lines, width)
    return ["The last state of each rank", *map(safe, table), *wrap("", verdict, width, 0), ""]


def _saved_steps(run: Run, arguments: argparse.Namespace) -> SavedSteps:
    from ...diagnose import SavedSteps

    ranks = run.ranks if arguments.rank is None else (arguments.rank,)
    text = arguments.steps or ":"
    begin, colon, end = text.partition(":")
    try:
        first, last = int(begin or 1), int(end) if end else None
    except ValueError:
        first, last = 0, None
    if not colon or first < 1 or (last is not None and last < first):
        raise OutputError(f"--steps: {text!r} is not a range of steps; allowed: two numbers such as 10:20, 10: or :20")
    return SavedSteps(run, ranks, first, last)
