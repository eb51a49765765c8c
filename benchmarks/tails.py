"""``python -m benchmarks.tails``: the longest of 150,000 tiny steps, bare and with autoprof as it is by default.

Each run is a process of its own on a terminal of its own, whose output is read: the panel is drawn, the log, the
records and the picture of memory are written. Bare and recorded runs take turns; the steps of equal runs are pooled.

Beside the time that passed there is the processor's time of *quiet* steps: of those in which, and shortly before which,
no other process got the processor. On a busy machine only that says something.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .machine import describe

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "tails.json"
LANES: Final = ("bare", "autoprof")
QUANTILE: Final = 0.9999
ALLOWED: Final = 1.5
"""The bound of the quantile, as a multiple of the bare one."""
LONG_NS: Final = 2_000_000
AFTER_SWITCH: Final = 4
"""Steps after one that lost the processor which are not quiet either: they find the caches of another process."""
SIZE: Final = (100, 40)
"""Columns and rows of the terminal."""

Times = npt.NDArray[np.int64]


def train(lane: str, steps: int, path: Path, **changes: Any) -> None:
    """Make the steps of one run, and save the time, the processor's time and the lost processors of each.

    ``changes`` are those to the default configuration.
    """
    import torch

    torch.set_num_threads(1)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(16, 16), torch.nn.ReLU())]
    model, x = torch.nn.Sequential(*layers), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    wall, busy, lost = (np.zeros(steps, dtype=np.int64) for _ in range(3))
    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder:
        session: Any = None
        if lane == "autoprof":
            import autoprof

            session = autoprof.instrument(model, {"output": folder, **changes}, optimizer=optimizer)
        for step in range(steps):
            began, worked = time.perf_counter_ns(), time.thread_time_ns()
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            busy[step], wall[step] = time.thread_time_ns() - worked, time.perf_counter_ns() - began
            lost[step] = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        if session is not None:
            session.close()
    np.save(path, np.stack([wall, busy, np.diff(lost, prepend=lost[0])]))


def run_on_terminal(lane: str, steps: int, path: Path) -> None:
    """Make one run in a process on a terminal, and read all that it prints."""
    pid, terminal = pty.fork()
    if not pid:
        columns, rows = SIZE
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows), OMP_NUM_THREADS="1")
        os.environ.pop("CI", None)
        os.chdir(ROOT)
        run = f'stty cols {columns} rows {rows}; exec "$0" -m benchmarks.tails --lane {lane} --steps {steps}'
        os.execv("/bin/sh", ["sh", "-c", f'{run} --save "$1"', sys.executable, str(path)])
    printed = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # the end of a terminal that nobody writes to any more
            piece = b""
        if not piece:
            break
        printed = (printed + piece)[-4000:]
    os.close(terminal)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError(f"{lane}: the run failed: {printed.decode(errors='replace')}")


def quiet(lost: Times) -> npt.NDArray[np.bool_]:
    """Return which steps, and the few before them, kept the processor."""
    disturbed = np.convolve(lost > 0, np.ones(1 + AFTER_SWITCH))[: len(lost)] > 0
    return ~disturbed


def tail(times: Times) -> dict[str, float]:
    """Return the median, the quantile with the 95 % interval of its order statistic, and the number of long steps."""
    ordered = np.sort(times)
    beyond = (1 - QUANTILE) * len(ordered)
    spread = 1.96 * np.sqrt(beyond)
    at = [min(max(round(len(ordered) - beyond + offset), 0), len(ordered) - 1) for offset in (0.0, -spread, spread)]
    value, low, high = (float(ordered[place]) / 1e6 for place in at)
    return {
        "steps": len(ordered),
        "median_ms": float(np.median(ordered)) / 1e6,
        "p9999_ms": value,
        "low_ms": low,
        "high_ms": high,
        "long": int((ordered > LONG_NS).sum()),
        "max_ms": float(ordered[-1]) / 1e6,
    }


def describe_lane(runs: Sequence[npt.NDArray[np.int64]]) -> dict[str, dict[str, float]]:
    """Return the tails of the pooled steps of equal runs: of the time that passed, and of the quiet steps' own."""
    wall = np.concatenate([run[0] for run in runs])
    busy = np.concatenate([run[1][quiet(run[2])] for run in runs])
    return {"time": tail(wall), "processor, quiet steps": tail(busy)}


def measure(runs: int, steps: int) -> dict[str, dict[str, dict[str, float]]]:
    """Make the runs in turn; return the tails of each lane."""
    times: dict[str, list[npt.NDArray[np.int64]]] = {lane: [] for lane in LANES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "times.npy")
        for number in range(runs):
            for lane in LANES if number % 2 == 0 else LANES[::-1]:
                run_on_terminal(lane, steps, path)
                times[lane].append(np.load(path))
    return {lane: describe_lane(found) for lane, found in times.items()}


def render(results: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Return the table and the verdict."""
    lines = [f"{'':24}{'steps':>9}{'median':>9}{'p99.99':>9}{'95 % interval':>17}{'> 2 ms':>8}{'max':>9}"]
    for clock in results["bare"]:
        for lane in LANES:
            one = results[lane][clock]
            interval = f"{one['low_ms']:.2f} to {one['high_ms']:.2f}"
            lines.append(
                f"{clock[:14]:15}{lane:9}{one['steps']:9,}{one['median_ms']:9.3f}{one['p9999_ms']:9.2f}"
                f"{interval:>17}{one['long']:8,}{one['max_ms']:9.2f}"
            )
        ratio = results["autoprof"][clock]["p9999_ms"] / results["bare"][clock]["p9999_ms"]
        lines.append(f"{clock}: p99.99 is {ratio:.2f} × the bare one (at most {ALLOWED})")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the results; return 1 where the bound is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tails", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=150_000, help="steps of a run (default: %(default)s)")
    parser.add_argument("--lane", choices=LANES, help=argparse.SUPPRESS)
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.lane is not None:
        train(options.lane, options.steps, options.save)
        return 0
    results = measure(options.runs, options.steps)
    print("\n".join(render(results)))
    text = json.dumps({"machine": describe(), "load": os.getloadavg()[0], "results": results}, indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    ratio = results["autoprof"]["time"]["p9999_ms"] / results["bare"]["time"]["p9999_ms"]
    return int(ratio > ALLOWED)


if __name__ == "__main__":
    raise SystemExit(main())
