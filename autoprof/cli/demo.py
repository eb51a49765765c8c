"""``autoprof demo``: train and profile the reference model."""

from __future__ import annotations

import argparse
from typing import Any

from ._help import add_command


def add(commands: Any) -> None:
    """Add the command to the parser."""
    from ..demo import add_arguments

    parser = add_command(
        commands,
        "demo",
        help="train and profile the reference model",
        description="Train VRTWithSpike, a video-deblurring transformer, on real photographs and profile it.",
        examples={
            "autoprof demo": "train for about a minute, then print the report",
            "autoprof demo --size tiny --steps 63": "a smaller model",
        },
    )
    add_arguments(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ..demo import run

    return run(arguments)
