"""``python -m benchmarks.gpu``: one table and the raw samples as JSON, on a machine with CUDA."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import torch

NO_DEVICE = 2
"""The exit status where there is no CUDA."""


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 when something does not hold, 2 where there is no CUDA."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="Measure the cost of autoprof on a GPU."
    )
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument(
        "--models", default="layers,reference,gpt", help="which models, by comma (default: %(default)s)"
    )
    parser.add_argument("--size", choices=("tiny", "small", "large"), default="large", help="of the reference workload")
    parser.add_argument("--rounds", type=int, help="turns of each variant (default: 20; quick: 4)")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent.parent / "results")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("benchmarks.gpu: torch sees no CUDA device here; run it on a machine that has one", file=sys.stderr)
        return NO_DEVICE
    from .run import run
    from .table import passed, render

    warnings.filterwarnings("ignore", message="Full backward hook is firing|For backward hooks to be called")
    rounds = options.rounds or (4 if options.quick else 20)
    results = run(tuple(options.models.split(",")), options.size, rounds, quick=options.quick)
    print(render(results))
    options.output.mkdir(parents=True, exist_ok=True)
    raw = options.output / "gpu.json"
    raw.write_text(json.dumps(results) + "\n", encoding="utf-8")
    print(f"\n{raw}")
    return 0 if passed(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
