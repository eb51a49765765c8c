"""``autoprof config``: check a configuration, or print its JSON Schema."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ._common import add_command


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "config",
        help="check a configuration file, or print the JSON Schema",
        description="Check a configuration file; every problem is reported with its line. Exit status: 0 valid, 2 not.",
        examples={
            "autoprof config autoprof.yaml": "check a file",
            "autoprof config --schema > autoprof.schema.json": "the JSON Schema, for an editor",
        },
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", metavar="FILE", help="the YAML file to check")
    source.add_argument("--schema", action="store_true", help="print the JSON Schema, for editors")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ..config.json_schema import json_schema
    from ..sinks import Config, load_config

    if arguments.schema:
        print(json.dumps(json_schema(Config), indent=2, ensure_ascii=False))
        return 0
    settings = load_config(arguments.file)
    print(f"{arguments.file}: ok, {len(settings.targets)} rules and {len(settings.functions)} functions")
    return 0
