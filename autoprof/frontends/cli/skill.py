"""``autoprof skill``: print the instructions for a coding agent: which command when, and the meaning of each field."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ._common import add_command, print_lines


def add(commands: Any) -> None:
    """Add the command to the parser."""
    add_command(
        commands,
        "skill",
        help="print the instructions for a coding agent: which command when, and how to prove a change",
        description="Print a file of instructions for a coding agent, with a name and a description at its head.",
        examples={
            "autoprof skill": "print it",
            "mkdir -p .claude/skills/autoprof && autoprof skill > .claude/skills/autoprof/SKILL.md": "one place for it",
        },
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the file."""
    print_lines(Path(__file__).with_name("skill.md").read_text(encoding="utf-8").splitlines())
    return 0
