"""``autoprof demo``: train and profile the reference model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._common import add_command


def add(commands: Any) -> None:
    """Add the command to the parser."""
    from ..demo.presets import PRESETS

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
    parser.add_argument("--size", choices=tuple(PRESETS), default="small", help="model and clips (default: small)")
    parser.add_argument("--steps", type=_at_least(1), help="training steps (default: chosen by the size)")
    parser.add_argument("--device", default="cpu", help="where to train: cpu, cuda, cuda:1, … (default: cpu)")
    parser.add_argument(
        "--checkpoint",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="recompute activations in backward instead of keeping them, as the original training does (default: yes)",
    )
    parser.add_argument("--workers", type=_at_least(0), default=0, help="processes that make clips (default: 0)")
    parser.add_argument("--seed", type=_at_least(0), default=0, help="seed of the weights and the clips (default: 0)")
    parser.add_argument("--config", type=Path, help="configuration file (default: autoprof's vrt_spike.yaml)")
    parser.add_argument("--output", type=Path, help="folder for the run's folder (default: the configuration's, runs)")


def _at_least(least: int) -> Callable[[str], int]:
    """Return an argparse type: an integer that is at least ``least``."""

    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small; allowed: {least} or more")
        return value

    return integer


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ..demo import run as run_demo

    return run_demo(arguments)
