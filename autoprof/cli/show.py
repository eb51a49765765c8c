"""``autoprof show``: print the summary of a saved run, and make its files again from the records."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OutputError

if TYPE_CHECKING:
    from .._storage.runs import Run
    from ..sinks._export import Chosen
    from ..summary import Summary


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "show",
        help="print the summary of a saved run, or write its tables and figures again",
        description=(
            "Print the summary of a saved run; of a run that was killed, what its records say. With one of the options "
            "for files, write these instead, from the records, whatever sinks the run had."
        ),
    )
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run, such as runs/2026-11-20_10-00-00-ab12")
    parser.add_argument("--rank", type=int, help="only this rank (default: the summary of rank 0, the files of all)")
    parser.add_argument("--steps", metavar="A:B", help="only steps A to B in the files; either may be left out")
    files = parser.add_argument_group("files")
    files.add_argument("--csv", type=Path, metavar="FILE", help="a table, a row a step")
    files.add_argument("--span-csv", type=Path, metavar="FILE", help="a table, a row a span")
    files.add_argument("--trace", type=Path, metavar="FILE", help="a trace for ui.perfetto.dev")
    files.add_argument("--speedscope", type=Path, metavar="FILE", help="a file for www.speedscope.app")
    files.add_argument("--memory-plot", type=Path, metavar="FILE", help="the memory over the steps, a PNG, of one rank")
    files.add_argument("--log", type=Path, metavar="FILE", help="the readable log of one rank")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from .._reports.summary_text import render_summary
    from .._storage.runs import read_run

    run = read_run(arguments.run_folder)
    if arguments.rank is not None and arguments.rank not in run.ranks:
        known = ", ".join(map(str, run.ranks)) or "none"
        raise OutputError(f"--rank: {run.path} has no records of rank {arguments.rank}; it has: {known}")
    if not _write_files(run, arguments):
        summary = _summary(run, arguments.rank)
        print("\n".join(render_summary(summary, width=shutil.get_terminal_size().columns)))
    return 0


def _summary(run: Run, rank: int | None) -> Summary:
    """Return what the run says of this rank; of a run that was killed, what its records say."""
    from .._capture.memory import tabulate
    from .._stats import Aggregate
    from ..diagnose import Observer, diagnose, evidence_of_run, facts_of_run

    summary = run.summary if rank is None else run.rank_summary(rank)
    if summary is not None:
        return diagnose(evidence_of_run(run)) if rank is None and len(run.ranks) > 1 else summary
    aggregate, observer = Aggregate(), Observer()
    frames = run.frames if rank is None else run.rank_frames(rank)
    for frame in frames:
        aggregate.add(frame)
        observer.add(frame)
    ended = "this run was not closed; its records say:"
    notes = (f"{frames.bad_lines} lines of steps.jsonl are not whole",) if frames.bad_lines else ()
    told = tabulate(aggregate.summary(notes=(ended, *notes)), None)
    return diagnose(observer.evidence(told, facts_of_run(run, observer)))


def _write_files(run: Run, arguments: argparse.Namespace) -> list[Path]:
    """Write the files that are asked for and say so; return them."""
    from ..sinks import _export as again

    chosen = _chosen(run, arguments)
    one = chosen.ranks[0] if chosen.ranks else 0
    writers = {
        "csv": lambda path: again.write_csv(chosen, path, "step"),
        "span_csv": lambda path: again.write_csv(chosen, path, "span"),
        "trace": lambda path: again.write_trace(chosen, path),
        "speedscope": lambda path: again.write_speedscope(chosen, path),
        "memory_plot": lambda path: again.write_memory_plot(chosen.frames(one), _summary(run, one), path),
        "log": lambda path: again.write_log(chosen.frames(one), _summary(run, one), path),
    }
    wanted = {name: getattr(arguments, name) for name in writers if getattr(arguments, name) is not None}
    if wanted and not chosen.ranks:
        raise OutputError(f"{run.path}: there are no records to write files from; a run with the sink jsonl has them")
    for name, path in wanted.items():
        writers[name](path)
        print(f"{path}: written", file=sys.stderr)
    return list(wanted.values())


def _chosen(run: Run, arguments: argparse.Namespace) -> Chosen:
    from ..sinks._export import Chosen

    ranks = run.ranks if arguments.rank is None else (arguments.rank,)
    text = arguments.steps or ":"
    begin, colon, end = text.partition(":")
    try:
        first, last = int(begin or 1), int(end) if end else None
    except ValueError:
        first, last = 0, None
    if not colon or first < 1 or (last is not None and last < first):
        raise OutputError(f"--steps: {text!r} is no range of steps; allowed: two numbers such as 10:20, or 10: or :20")
    return Chosen(run, ranks, first, last)
