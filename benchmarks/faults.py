"""``python -m benchmarks.faults``: page faults of the reference workload, with and without autoprof.

Each run is a process of its own, which counts the page faults of some steps. glibc returns freed memory to the system
and gets it back as new pages, each with a fault; ``kept`` runs are told to keep it (``machine.keep_memory``).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from .machine import describe, keep_memory
from .ours import Discard, Full
from .variant import Variant
from .workloads import reference

RESULTS: Final = Path(__file__).resolve().parent / "results" / "faults.json"
VARIANTS: Final = ("bare", "full")
WARMUP: Final = 4


def count(variant: Variant, steps: int, size: str) -> list[int]:
    """Return the page faults of each step, the variant's work at its end included."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    workload, faults = reference(torch.device("cpu"), size), []
    with contextlib.redirect_stdout(Discard()):
        variant.open(workload)
        try:
            for number in range(WARMUP + steps):
                if number == WARMUP:
                    gc.collect()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                workload.step()
                variant.end_step()
                faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        finally:
            variant.close()
    return faults[WARMUP:]


def main(arguments: list[str] | None = None) -> int:
    """Run the processes in turn, print the faults of a step, and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="processes of each kind (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="steps of a process (default: %(default)s)")
    parser.add_argument("--size", choices=("tiny", "small"), default="small", help="of the reference workload")
    parser.add_argument("--one", choices=VARIANTS, help="make one run in this process, and print it")
    parser.add_argument("--keep", action="store_true", help="with --one: keep freed memory")
    options = parser.parse_args(arguments)
    if options.one is not None:
        if options.keep and not keep_memory():
            parser.error("--keep: this system's allocator is not glibc's")
        print(json.dumps(count(Full() if options.one == "full" else Variant(), options.steps, options.size)))
        return 0
    runs: dict[str, list[float]] = {}
    for _ in range(options.runs):
        for keep in (False, True):
            for name in VARIANTS:
                faults = _apart(name, options.steps, options.size, keep=keep)
                runs.setdefault(f"{name}, {'kept' if keep else 'as it is'}", []).append(median(faults))
    for kind, found in runs.items():
        print(f"{kind:<20}" + "  ".join(f"{faults:,.0f}" for faults in sorted(found)))
    results: dict[str, Any] = {"machine": describe(), "size": options.size, "steps": options.steps, "faults": runs}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _apart(name: str, steps: int, size: str, *, keep: bool) -> list[int]:
    command = [sys.executable, "-m", "benchmarks.faults", "--one", name, "--steps", str(steps), "--size", size]
    done = subprocess.run(
        [*command, *(["--keep"] if keep else [])],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    faults: list[int] = json.loads(done.stdout.splitlines()[-1])
    return faults


if __name__ == "__main__":
    raise SystemExit(main())
