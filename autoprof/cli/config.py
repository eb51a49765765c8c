"""``autoprof config``: check a configuration, or print its JSON Schema."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "config",
        help="check a configuration file, or print the JSON Schema",
        description="Check a configuration file; every problem is reported with its line. Exit status: 0 valid, 2 not.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", metavar="FILE", help="the YAML file to check")
    source.add_argument("--schema", action="store_true", help="print the JSON Schema, for editors")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ..config import json_schema, load_config

    if arguments.schema:
        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return 0
    settings = load_config(arguments.file)
    print(f"{arguments.file}: ok, {len(settings.targets)} rules and {len(settings.functions)} functions")
    return 0
