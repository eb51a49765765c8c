"""``python -m benchmarks.flight``: the cost of the flight recorder, and slow steps among real step lengths.

- The end of an unsampled step: nanoseconds with and without the recorder, the least of many rounds.
- The recorder's thread: CPU time a second beside steps of several lengths. The training thread sleeps in them, so the
  CPU time of the process less that of the training thread is the recorder's.
- Healthy steps: real trainings of tiny models, whose steps are all in the ring; a slow step among them is a false
  trigger, or a disturbance by another process of the machine, which is listed with its length.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any, Final

import numpy as np
import torch
from torch import nn

import autoprof
from autoprof._flight import SlowSteps, StepRing

from .machine import describe

RESULTS: Final = Path(__file__).resolve().parent / "results" / "flight.json"
ROUNDS, CALLS = 50, 10_000


def end_of_step(folder: Path) -> dict[str, float]:
    """Return the nanoseconds of the calls at the end of an unsampled step."""
    sessions: dict[str, Any] = {}
    for mode in ("off", "on"):
        config = {"sinks": {"log": None}, "output": str(folder / mode), "flight_recorder": {"mode": mode}}
        sessions[mode] = autoprof.instrument(nn.Linear(1, 1), config)
    best = dict.fromkeys(sessions, float("inf"))
    for _ in range(ROUNDS):
        for mode, session in sessions.items():
            ends = session._sampling.step_ends
            began_ns = perf_counter_ns()
            for number in range(CALLS):
                ends(number, perf_counter_ns())
            best[mode] = min(best[mode], (perf_counter_ns() - began_ns) / CALLS)
    for session in sessions.values():
        session.close()
    return {**{f"{mode}_ns": round(ns, 1) for mode, ns in best.items()}, "added_ns": round(best["on"] - best["off"], 1)}


def thread_time(folder: Path, step_s: float, seconds: float) -> dict[str, float]:
    """Return the CPU time of all other threads, in µs a second, beside steps of this length; off and on in turns."""
    spent = {"off": [0, 0], "on": [0, 0]}
    for turn in range(8):
        mode = "on" if turn % 2 else "off"
        config = {
            "sinks": {"log": None}, "output": str(folder / f"{step_s}-{turn}"), "monitor": "off", "flops": "off",
            "sample": {"budget": None, "every": 10**6}, "flight_recorder": {"mode": mode},
        }  # fmt: skip
        with autoprof.instrument(nn.Linear(1, 1), config) as session:
            for _ in range(20):
                session.step()
            began_ns, process_ns, own_ns = perf_counter_ns(), process_time_ns(), thread_time_ns()
            while perf_counter_ns() - began_ns < seconds / 4 * 1e9:
                time.sleep(step_s)
                session.step()
            spent[mode][0] += process_time_ns() - process_ns - (thread_time_ns() - own_ns)
            spent[mode][1] += perf_counter_ns() - began_ns
    return {
        "step_ms": step_s * 1e3,
        **{f"{mode}_us_a_second": round(ns / of * 1e6, 1) for mode, (ns, of) in spent.items()},
    }


def healthy_steps(folder: Path, steps: int, width: int) -> dict[str, Any]:
    """Train; return the slow steps that the limit finds among the lengths of all steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer, x = torch.optim.AdamW(model.parameters()), torch.randn(32, width)
    ring = StepRing.create(folder / f"{width}.bin", 0, 1)
    lengths = np.empty(steps, dtype=np.int64)
    for number in range(steps):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ring.end_step(perf_counter_ns())
        lengths[number] = ring.last_ns
    ring.close()
    limits, slow = SlowSteps(), []
    for begin in range(0, steps, 100):
        for number in range(begin, min(begin + 100, steps)):
            if lengths[number] > limits.limit_ns:
                slow.append((number + 1, round(float(lengths[number]) / 1e6, 2)))
                limits.add_slow(int(lengths[number]))
        end = min(begin + 100, steps)
        limits.update(lengths[max(end - 1024, 0) : end], end)
    percentiles = {f"p{p}_ms": round(float(np.quantile(lengths, p / 100)) / 1e6, 3) for p in (50, 99, 99.9, 100)}
    return {"width": width, "steps": steps, **percentiles, "slow": slow}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flight", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of each length of step (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100_000, help="healthy steps (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with TemporaryDirectory() as name:
        folder = Path(name)
        found = {
            "machine": describe(),
            "end_of_step": end_of_step(folder),
            "thread": [thread_time(folder, step_s, chosen.seconds) for step_s in (0.001, 0.02, 0.2)],
            "healthy": [healthy_steps(folder, chosen.steps, width) for width in (16, 256)],
        }
    text = json.dumps(found, indent=1)
    print(text)
    chosen.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
