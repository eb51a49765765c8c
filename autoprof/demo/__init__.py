"""The reference workload, as the command ``autoprof demo``: train a small ``VRTWithSpike`` and profile it.

Importing this package is cheap; torch's heavy parts, scikit-image and the model are loaded by ``run``.
"""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .train import DemoOptions, DemoResult

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Train, profile and report; return the exit status. Raises ``AutoprofError`` if the training cannot start."""
    import torch

    from autoprof.sinks import load_config

    from .train import DemoOptions, train

    options = DemoOptions(args.size, args.steps, _usable_device(args.device), args.checkpoint, args.seed, args.workers)
    with as_file(files(__name__) / "vrt_spike.yaml") as packaged:
        config = load_config(args.config or packaged)
    if args.output is not None:
        config = config.model_copy(update={"output": args.output})
    torch.backends.cudnn.deterministic = True  # on a GPU too, the seed decides every bit
    print(report(options, train(options, config)))
    return 0


def report(options: DemoOptions, result: DemoResult) -> str:
    """Return the result of a training as three lines of at most 80 characters."""
    return (
        f"trained {result.steps} steps of size {options.size} on {options.device} in {result.seconds:.0f} s\n"
        f"loss {result.loss_first:.4f} -> {result.loss_last:.4f} (means of the first and the last tenth of the steps)\n"
        f"unseen photograph: {result.psnr_blurred:.2f} dB blurred, {result.psnr_restored:.2f} dB restored"
    )


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
