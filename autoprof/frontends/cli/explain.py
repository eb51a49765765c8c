"""``autoprof explain``: the causes of a run's time as JSON, for programs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ._common import add_command, add_run, print_json


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "explain",
        help="causes, places and experiments of a run, as JSON for programs",
        description=(
            "Explain a saved run to a program: each cause with its place, its confidence and the experiment that would "
            "confirm it, and the signals that were not measured. At most 4 kB of JSON by a stable schema "
            "(docs/explain.md). autoprof show --full is the report for people."
        ),
        examples={
            "autoprof explain --json": "the latest run in the folder runs",
            "autoprof explain --schema > explain.schema.json": "the JSON Schema",
        },
    )
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="the form of the output, which has no other")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema instead")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ...base.storage.runs import find_run, read_run
    from ...reports.explain import encode, explain_run, json_schema

    if arguments.schema:
        print_json(json_schema())
        return 0
    found = explain_run(read_run(find_run(arguments.run_folder)))
    sys.stdout.buffer.write(encode(found).encode() + b"\n")
    return 0
