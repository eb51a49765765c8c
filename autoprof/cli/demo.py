"""``autoprof demo``: train and profile the reference model."""

from __future__ import annotations

import argparse
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
    parser.add_argument("--steps", type=_positive, help="training steps (default: chosen by the size)")
    parser.add_argument("--device", default="cpu", help="where to train: cpu, cuda, cuda:1, … (default: cpu)")
    parser.add_argument("--config", type=Path, help="configuration file (default: autoprof's vrt_spike.yaml)")
    parser.add_argument("--output", type=Path, help="folder for the run's folder (default: the configuration's, runs)")


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not allowed; allowed: 1 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ..demo import run as run_demo

    return run_demo(arguments)
