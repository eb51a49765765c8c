"""``autoprof demo``: train and profile the reference model."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from ._common import add_command


def _import_demo(module: str = "") -> Any:
    """Import the demo or a module of it: a clone has it in its folder ``examples``, a wheel inside the package."""
    is_clone = (Path(__file__).resolve().parents[3] / "examples" / "demo").is_dir()
    return import_module(f"{'examples' if is_clone else 'autoprof'}.demo{module}")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    sizes = tuple(_import_demo(".presets").PRESETS)
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
    parser.add_argument(
        "--size",
        choices=sizes,
        default="small",
        help="model and clips (default: small)",
    )
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
    return int(_import_demo().run(arguments))
