"""The longest steps of trainings by default, bare and with autoprof in turn, and the memory of a long run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .paired import print_line
from .processes import run_on_terminal, run_program
from .table import Bound

Times = npt.NDArray[np.int64]
"""Nanoseconds of each step by the wall clock and by the processor's."""
KINDS: Final = {"0.2 ms": (50_000, 0), "10 ms": (2_000, 10_000_000)}
"""Steps of a run, and the rest of each step in nanoseconds."""
RUNS: Final = 2
POINTS: Final = (10_000, 100_000)
"""Steps after which memory is read."""
MIB: Final = 1 << 20
EXTRA_MS: Final = 5.0
"""The longest extra of a step of 0.2 ms."""
NOTICED_MS: Final = 1.0
"""An extra of a step of 0.2 ms that counts as one of the two a second."""
TRAINING: Final = ("-m", "benchmarks.programs.long_training")

HEADER: Final = ("steps of", "median, ms", "p99", "p99.99", "longest", "mean", "extras > 1 ms a second")


def measure(*, quick: bool) -> tuple[list[Bound], dict[str, Any]]:
    """Return the limits, and the raw figures of the trainings and of memory."""
    tails = _tails(1 if quick else RUNS, 100 if quick else 1)
    memory, readings = _memory((100, 200) if quick else POINTS)
    return [*_tail_bounds(tails), memory], {"tails": tails, "memory": readings}


def rows(tails: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[tuple[str, ...]]:
    """Return the rows of the table: a row for each kind of training, bare and with autoprof."""
    return [
        (f"{kind}, {lane}", *(f"{one[key]:.3f}" for key in ("median", "p99", "p99.99", "max", "mean", "noticed")))
        for kind, lanes in tails.items()
        for lane, one in lanes.items()
    ]


def _tails(runs: int, fewer: int) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, list[Times]]] = {kind: {"bare": [], "autoprof": []} for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "times.npy")
        for number in range(runs):
            for kind, (steps, rest_ns) in KINDS.items():
                print_line(f"steps of {kind}: run {number + 1} of {runs}")
                for lane in ("bare", "autoprof") if number % 2 else ("autoprof", "bare"):
                    words = ["times", "--lane", lane, "--steps", str(steps // fewer), "--rest-ns", str(rest_ns)]
                    run_on_terminal([*TRAINING, *words, "--save", str(path)], 1)
                    found[kind][lane].append(np.load(path))
    print_line("")
    return {kind: {lane: tail(runs) for lane, runs in lanes.items()} for kind, lanes in found.items()}


def tail(runs: Sequence[Times]) -> dict[str, float]:
    """Describe the pooled steps of equal runs, in ms: by the wall clock, and the processor's longest step."""
    wall = np.concatenate([run[0] for run in runs]) / 1e6
    usual = float(np.median(wall))
    return {
        "steps": len(wall),
        "median": usual,
        "p99": float(np.quantile(wall, 0.99)),
        "p99.99": float(np.quantile(wall, 0.9999)),
        "max": float(wall.max()),
        "mean": float(wall.mean()),
        "noticed": float((wall > usual + NOTICED_MS).sum() / (wall.sum() / 1e3)),
        "processor_max": float(max(run[1].max() for run in runs)) / 1e6,
    }


def _tail_bounds(found: dict[str, dict[str, dict[str, float]]]) -> list[Bound]:
    bare, own = found["0.2 ms"]["bare"], found["0.2 ms"]["autoprof"]
    extra = own["processor_max"] - own["median"]
    text = f"{extra:.2f} ms (bare {bare['processor_max'] - bare['median']:.2f} ms)"
    often = own["noticed"] - bare["noticed"]
    bounds = [
        Bound("steps of 0.2 ms: longest extra, processor time", f"≤ {EXTRA_MS:g} ms", text, extra <= EXTRA_MS),
        Bound("steps of 0.2 ms: extras > 1 ms a second, beyond bare", "≤ 2", f"{often:.2f}", often <= 2),
    ]
    bare, own = found["10 ms"]["bare"], found["10 ms"]["autoprof"]
    p99, share = own["p99"] / bare["p99"], 100 * (own["mean"] / bare["mean"] - 1)
    return [
        *bounds,
        Bound("steps of 10 ms: p99 over bare", "≤ 1.05 ×", f"{p99:.3f} ×", p99 <= 1.05),
        Bound("steps of 10 ms: extra of all the time", "≤ 1 %", f"{share:.2f} %", share <= 1),
    ]


def _memory(points: Sequence[int]) -> tuple[Bound, list[dict[str, Any]]]:
    print_line(f"memory to step {points[-1]:,}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "memory.json")
        run_program([*TRAINING, "memory", "--save", str(path), "--steps", *map(str, points)], 1)
        readings: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    grown = (readings[-1]["rss_bytes"] - readings[0]["rss_bytes"]) / MIB
    text = f"{grown:+.2f} MiB from step {points[0]:,} to step {points[-1]:,}"
    return Bound("resident memory", "≤ 1 MiB more", text, grown <= 1), readings
