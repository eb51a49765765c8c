"""``autoprof demo``: train and profile the reference model."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Add the command to the parser."""
    from ..demo import add_arguments

    parser = commands.add_parser(
        "demo",
        help="train and profile the reference model",
        description="Train VRTWithSpike, a video-deblurring transformer, on real photographs and profile it.",
    )
    add_arguments(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ..demo import run

    return run(arguments)
