"""``autoprof show``: print the summary of a saved run."""

from __future__ import annotations

import argparse
import shutil
from typing import Any


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "show",
        help="print the summary of a saved run",
        description="Print the summary of a saved run; of a run that was killed, what its records say.",
    )
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run, such as runs/2026-11-20_10-00-00-ab12")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ..aggregate import Aggregate
    from ..diagnose import Observer, diagnose, evidence_of_run, facts_of_run
    from ..render.summary_text import render_summary
    from ..runs import read_run

    run = read_run(arguments.run_folder)
    summary = run.summary
    if summary is None:
        aggregate, observer, frames = Aggregate(), Observer(), run.frames
        for frame in frames:
            aggregate.add(frame)
            observer.add(frame)
        ended = "this run was not closed; its records say:"
        notes = (f"{frames.bad_lines} lines of steps.jsonl are not whole",) if frames.bad_lines else ()
        summary = diagnose(observer.evidence(aggregate.summary(notes=(ended, *notes)), facts_of_run(run, observer)))
    elif len(run.ranks) > 1:
        summary = diagnose(evidence_of_run(run))
    print("\n".join(render_summary(summary, width=shutil.get_terminal_size().columns)))
    return 0
