"""``python -m benchmarks.start``: how much later a program starts, and makes its first step, under ``autoprof run``."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from .machine import describe

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "start.json"
NOW: Final = "import time; print(time.monotonic_ns(), time.process_time_ns(), flush=True)"
TRAIN: Final = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(8, 64)).sum().backward()
optimizer.step()
"""
CLOCKS: Final = ("wall", "processor")
Start = tuple[float, float]
PROGRAMS: Final = {
    "a program's first line": NOW,
    "`import torch` done": f"import torch; {NOW}",
    "the first optimizer step done": f"{TRAIN}\n{NOW}",
}


def main(arguments: list[str] | None = None) -> int:
    """Measure each program, print the table, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="pairs of starts (default: %(default)s)")
    options = parser.parse_args(arguments)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name, code in PROGRAMS.items():
        results[name] = measure(code, options.rounds)
        print(f"{name}: {results[name]}", flush=True)
    text = json.dumps({"machine": describe(), "load": os.getloadavg()[0], "results": results}, indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    return 0


def measure(code: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median start in ms, bare and by ``autoprof run``, and the median of the pairs' differences.

    Of the time that passed, and of the time of the processor: on a busy machine only the second says much.
    """
    pairs: list[tuple[Start, Start]] = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(code, encoding="utf-8")
        bare, ours = [sys.executable, str(program)], [sys.executable, "-m", "autoprof", "run", str(program)]
        start(bare, folder), start(ours, folder)  # fills the caches of files and bytecode
        for _ in range(rounds):
            if random.random() < 0.5:
                first = start(bare, folder)
                pairs.append((first, start(ours, folder)))
            else:
                first = start(ours, folder)
                pairs.append((start(bare, folder), first))
    return {clock: _figures([(before[i], after[i]) for before, after in pairs]) for i, clock in enumerate(CLOCKS)}


def _figures(pairs: list[tuple[float, float]]) -> dict[str, float]:
    differences = [after - before for before, after in pairs]
    low, _, high = quantiles(differences, n=4)
    figures = (median(before for before, _ in pairs), median(after for _, after in pairs), median(differences))
    names = ("bare_ms", "run_ms", "difference_ms", "quartile_low_ms", "quartile_high_ms")
    return dict(zip(names, (round(one, 1) for one in (*figures, low, high)), strict=True))


def start(command: list[str], folder: str) -> Start:
    """Return the time from the start of a command to the moment that its program prints, on each clock, in ms."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("AUTOPROF_RUN", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # torch has its bytecode; that of autoprof is kept as pip keeps it
    began = time.monotonic_ns()
    result = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    now, processor = map(int, result.stdout.split())
    return (now - began) / 1e6, processor / 1e6


if __name__ == "__main__":
    raise SystemExit(main())
