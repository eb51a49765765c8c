"""The reference workload, as the command ``autoprof demo``: train a small ``VRTWithSpike`` and profile it.

It is ``examples.demo`` in a clone, and ``autoprof.demo`` in an installed wheel. Importing it is cheap; torch's heavy
parts, scikit-image and the model are loaded by ``run``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Train, profile and report; return the exit status. Raises ``AutoprofError`` if the training cannot start."""
    import torch

    from autoprof.errors import AutoprofError
    from autoprof.sinks import load_config

    from .train import train

    try:
        torch.empty(1, device=args.device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        allowed = "cpu" + "".join(f", cuda:{i}" for i in range(torch.cuda.device_count()))
        reason = str(error).splitlines()[0]
        raise AutoprofError(f"autoprof demo: --device {args.device}: {reason}; allowed here: {allowed}") from error
    config = load_config(args.config or Path(__file__).with_name("vrt_spike.yaml"))
    if args.output is not None:
        config = config.model_copy(update={"output": args.output})
    began = time.perf_counter()
    losses = train(args.size, args.steps, args.device, config)
    seconds = time.perf_counter() - began
    print(f"trained {len(losses)} steps of size {args.size} on {args.device} in {seconds:.0f} s")
    tenth = -(-len(losses) // 10)
    first, last = (sum(part) / tenth for part in (losses[:tenth], losses[-tenth:]))
    print(f"loss {first:.4f} -> {last:.4f} (means of the first and the last tenth of the steps)")
    return 0
