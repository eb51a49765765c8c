"""``autoprof explain``: the causes of a run's time for people, or as JSON for programs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ._common import add_command, add_run, print_json, terminal


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "explain",
        help="causes, places and experiments of a run; as JSON for programs",
        description=(
            "Explain a saved run: each cause with its place, its confidence and the experiment that would confirm it, "
            "and the signals that were not measured. With --json at most 4 kB for programs, by a stable schema "
            "(docs/explain.md)."
        ),
        examples={
            "autoprof explain": "the latest run in the folder runs",
            "autoprof explain runs/before --json": "one run, for a program",
            "autoprof explain --schema > explain.schema.json": "the JSON Schema",
        },
    )
    add_run(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print JSON of at most 4 kB")
    forms.add_argument("--schema", action="store_true", help="print the JSON Schema of --json")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from .._reports.explain import encode, explain_run, json_schema, render_explanation
    from .._storage.runs import find_run, read_run

    if arguments.schema:
        print_json(json_schema())
        return 0
    found = explain_run(read_run(find_run(arguments.run_folder)))
    if arguments.json:
        sys.stdout.buffer.write(encode(found).encode() + b"\n")
        return 0
    width, encoding = terminal()
    print("\n".join(render_explanation(found, width=min(width, 120), encoding=encoding)))
    return 0
