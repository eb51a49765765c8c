"""``python -m benchmarks.threads``: training while other threads call the model, with and without autoprof.

A round is one run of each way, in random order, each in a process of its own. A run has a fixed number of training
steps, and a fixed number of calls on each of the other threads, and ends when all of them are done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from torch import nn

import autoprof

from .machine import describe

RESULTS: Final = Path(__file__).resolve().parent / "results" / "threads.json"
WAYS: Final[dict[str, dict[str, Any] | None]] = {
    "bare": None,
    "default budget": {"sinks": {}},
    "every step": {"sinks": {}, "sample": {"budget": None}},
}
LAYERS: Final = 40


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds, print the medians, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each way (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1_500, help="training steps of a run (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=4, help="other threads (default: %(default)s)")
    parser.add_argument("--way", choices=[*WAYS], help="make one run in this process, and print it")
    options = parser.parse_args(arguments)
    if options.way is not None:
        print(json.dumps(run(WAYS[options.way], options.steps, options.threads)))
        return 0
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in random.sample([*WAYS], len(WAYS)):
            runs[way].append(_run_apart(way, options.steps, options.threads))
            print(way, runs[way][-1], flush=True)
    results = {way: {name: median(one[name] for one in ones) for name in ones[0]} for way, ones in runs.items()}
    for way, one in results.items():
        ratios = {clock: round(one[clock] / results["bare"][clock], 3) for clock in ("wall_s", "processor_s")}
        print(f"{way}: {one}, times bare: {ratios}")
    found = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    found[f"{options.threads} threads"] = {"machine": describe(), "steps": options.steps, "results": results}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _run_apart(way: str, steps: int, threads: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.threads", "--way", way]
    command += ["--steps", str(steps), "--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(config: dict[str, Any] | None, steps: int, others: int) -> dict[str, float]:
    """Train while other threads call the model; return the seconds until all are done."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(LAYERS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    session = None if config is None else autoprof.instrument(model, config, optimizer=optimizer)

    def act() -> None:
        state = torch.randn(8, 64)
        with torch.no_grad():
            for _ in range(steps):
                model(state)

    threads = [threading.Thread(target=act) for _ in range(others)]
    batch = torch.randn(32, 64)
    began_s, processor_s = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    trained_s = time.perf_counter() - began_s
    for thread in threads:
        thread.join()
    figures = {
        "wall_s": round(time.perf_counter() - began_s, 3),
        "processor_s": round(time.process_time() - processor_s, 3),
        "training_s": round(trained_s, 3),
    }
    if session is not None:
        session.close()
    return figures | {"own_clock": 0.0 if session is None else round(session.summary().overhead, 4)}


if __name__ == "__main__":
    raise SystemExit(main())
