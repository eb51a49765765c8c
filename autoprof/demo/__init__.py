"""The reference workload, as the command ``autoprof demo``: train a small ``VRTWithSpike`` and profile it.

Importing this package is cheap; torch's heavy parts, scikit-image and the model are loaded by ``run``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from .ranks import RANKS, SLOW_NAME, SLOW_S, DemoRanks, check_slow_rank, joined, launch, launched_ranks, own_device

if TYPE_CHECKING:
    from .train import DemoOptions, DemoResult

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Train, profile and report; return the exit status. Raises ``AutoprofError`` if the training cannot start."""
    launched = launched_ranks()
    check_slow_rank(args.slow_rank, RANKS if launched is None else launched)
    if launched is None and args.slow_rank is not None:
        return launch(RANKS, arguments_of(args))
    several = launched is not None and launched > 1
    device = _usable_device(own_device(args.device) if several else args.device)
    if not several:
        return _train(args, device, DemoRanks())
    with joined(device) as ranks:
        return _train(args, device, replace(ranks, slow=args.slow_rank))


def _train(args: argparse.Namespace, device: str, ranks: DemoRanks) -> int:
    import torch

    from autoprof.sinks import load_config

    from .train import DemoOptions, train

    several = ranks.world_size > 1
    options = DemoOptions(
        size=args.size or ("tiny" if several else "small"),
        steps=args.steps or (120 if several else None),
        device=device,
        checkpoint=not several if args.checkpoint is None else args.checkpoint,
        seed=args.seed,
        workers=args.workers,
        ranks=ranks,
    )
    with as_file(files(__name__) / "vrt_spike.yaml") as packaged:
        config = load_config(args.config or packaged)
    if several and args.config is None:
        # The budget of several ranks: half a minute on shared processors is too short for enough steps at 1 %.
        config = config.model_copy(update={"sample": config.sample.model_copy(update={"budget": 0.05})})
    if args.output is not None:
        config = config.model_copy(update={"output": args.output})
    torch.backends.cudnn.deterministic = True  # on a GPU too, the seed decides every bit
    if not ranks.shows:
        train(options, config)
        return 0
    if ranks.slow is not None:
        slow = f"rank {ranks.slow} sleeps {SLOW_S * 1000:.0f} ms in the backward of {SLOW_NAME}, in each step"
        print(f"{ranks.world_size} ranks train; {slow}", file=sys.stderr, flush=True)
    print(report(options, train(options, config)))
    return 0


def arguments_of(args: argparse.Namespace) -> list[str]:
    """Return the arguments of ``autoprof demo`` that mean the same."""
    given = []
    for name, value in vars(args).items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            given.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, (int, str, Path)) and name != "command":
            given.append(f"--{option}={value}")
    return given


def report(options: DemoOptions, result: DemoResult) -> str:
    """Return the result of a training as three lines of at most 80 characters."""
    ranks = f", {options.ranks.world_size} ranks," if options.ranks.world_size > 1 else ""
    trained = (
        f"trained {result.steps} steps of size {options.size} on {options.device}{ranks} in {result.seconds:.0f} s"
    )
    return (
        f"{trained}\n"
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
