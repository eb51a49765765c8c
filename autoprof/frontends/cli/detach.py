"""``autoprof detach``: close the session that ``autoprof attach`` has opened in a process."""

from __future__ import annotations

import argparse
from typing import Any

from ._common import add_command
from .attach import add_processes, find_processes


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "detach",
        help="close the session that autoprof attach has opened in a process",
        description="Close the session that autoprof attach has opened in a process, at the end of its next step.",
        examples={
            "autoprof detach 4242": "where the command that attached was killed",
            "autoprof detach --job 4242": "all ranks",
        },
        allow_abbrev=False,
    )
    add_processes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ..attach.command import detach

    return detach(find_processes(arguments), arguments.wait)
