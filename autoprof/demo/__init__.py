"""The reference workload, as the command ``autoprof demo``: train a small ``VRTWithSpike`` and profile it.

Importing this package is cheap; torch's heavy parts, scikit-image and the model are loaded by ``run``.
"""

from __future__ import annotations

import argparse
import time
from importlib.resources import as_file, files

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
    with as_file(files(__name__) / "vrt_spike.yaml") as packaged:
        config = load_config(args.config or packaged)
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
