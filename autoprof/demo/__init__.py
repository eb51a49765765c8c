"""The reference workload, as the command ``autoprof demo``: train a small ``VRTWithSpike`` and profile it.

Importing this package is cheap; torch's heavy parts, scikit-image and the model are loaded by ``run``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from .presets import PRESETS

if TYPE_CHECKING:
    from .train import DemoOptions, DemoResult

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``autoprof demo``."""
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


def run(args: argparse.Namespace) -> int:
    """Train, profile and report; return the exit status. Raises ``AutoprofError`` if the training cannot start."""
    import torch

    from autoprof.config import load_config

    from .progress import ProgressLine
    from .train import DemoOptions, train

    options = DemoOptions(
        size=args.size,
        steps=args.steps,
        device=_usable_device(args.device),
        checkpoint=args.checkpoint,
        seed=args.seed,
        workers=args.workers,
    )
    with as_file(files(__name__) / "vrt_spike.yaml") as packaged:
        config = load_config(args.config or packaged)
    if args.output is not None:
        config = config.model_copy(update={"output": args.output})
    torch.backends.cudnn.deterministic = True  # on a GPU too, the seed decides every bit
    with ProgressLine(options.step_count) as progress:
        result = train(options, config, progress=progress)
    print(report(options, result))
    return 0


def report(options: DemoOptions, result: DemoResult) -> str:
    """Return the result of a training as three lines of at most 80 characters."""
    trained = f"trained {result.steps} steps of size {options.size} on {options.device} in {result.seconds:.0f} s"
    return (
        f"{trained}\n"
        f"loss {result.loss_first:.4f} -> {result.loss_last:.4f} (means of the first and the last tenth of the steps)\n"
        f"unseen photograph: {result.psnr_blurred:.2f} dB blurred, {result.psnr_restored:.2f} dB restored"
    )


def _at_least(least: int) -> Callable[[str], int]:
    """Return an argparse type: an integer that is at least ``least``."""

    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small; allowed: {least} or more")
        return value

    return integer


def _usable_device(name: str) -> str:
    """Return ``name`` if a tensor can be made on it. Raises ``AutoprofError`` with the allowed devices."""
    import torch

    from autoprof.errors import AutoprofError

    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        allowed = "cpu" + "".join(f", cuda:{i}" for i in range(torch.cuda.device_count()))
        reason = str(error).splitlines()[0]
        raise AutoprofError(f"autoprof demo: --device {name}: {reason}; allowed here: {allowed}") from error
    return name
