"""``autoprof doctor``: check that profiling is safe here."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ._common import add_command, print_json, print_lines, terminal_width


def add(commands: Any) -> None:
    """Add the command ``doctor``."""
    parser = add_command(
        commands,
        "doctor",
        help="check an installation and a model: safety",
        description=(
            "Check this installation, and a model if one is named, in about a minute. Exit status: 0 safe (also with "
            "warnings), 1 not safe, 2 could not be checked."
        ),
        examples={
            "autoprof doctor": "this installation, with the reference model",
            "autoprof doctor --model train:make_model": "your model",
            "autoprof doctor --model net.py:Net --config autoprof.yaml --json": "for a program",
        },
    )
    parser.add_argument(
        "--model",
        metavar="MODULE:FACTORY",
        help="a function that returns a model, (model, batch) or (model, batch, loss); default: the reference model",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="the YAML file to check with; default: every module, all phases"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ...sinks import load_config
    from ..doctor import examine, load_subject, reference_subject, render_report

    # Output of the user's own code must not end up in the report.
    with _progress() as progress, contextlib.redirect_stdout(sys.stderr):
        config = None if arguments.config is None else load_config(arguments.config)
        progress("making the model")
        subject = reference_subject() if arguments.model is None else load_subject(arguments.model)
        report = examine(subject, config, progress=progress)
    if arguments.json:
        print_json(report.to_dict())
    else:
        print_lines(render_report(report, width=terminal_width()))
    return report.exit_status


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the current part of the examination on a terminal."""
    from rich.console import Console

    with Console(stderr=True).status("autoprof doctor") as status:
        yield lambda part: status.update(f"autoprof doctor: {part}")
