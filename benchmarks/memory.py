"""Memory over a long run: ``python -m benchmarks.memory`` drives one session in a process of its own.

``python -m benchmarks.memory training 10000 2000000`` trains a small model with autoprof as it is by default. It takes
minutes, and is no part of ``make bench``. Besides the process's memory it names the growth by the count of FLOPs, which
is made once, when the run is long enough for its cost: most of it is code of torch that nothing has called before.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from unittest.mock import patch

from autoprof.devices import HostMemory

from .engine import Synthetic
from .ours import Discard

PATHS: Final = ("engine", "sinks")
TRAINING: Final = "training"
SPANS: Final = 8
ODD: Final = 100
"""Each so many steps one is of another shape, as the last batch of an epoch is."""


def drive(path: str, points: Sequence[int], *, trace: bool) -> list[dict[str, Any]]:
    """Run the steps as fast as they go; return the process's memory after each of the ``points``.

    ``engine`` is recorder, resolver and aggregate; ``sinks`` adds the four sinks, with real files.
    """
    folder = tempfile.mkdtemp(prefix="autoprof-bench-")
    changes: dict[str, Any] = {"output": folder}
    if path == "sinks":
        changes["sinks"] = {"console": {}, "log": {}, "jsonl": {}, "memory_plot": {}}
        changes["output_max_mb"] = None  # a full part is noted, and a session with a note has failed
    memory, readings = HostMemory(), []
    if trace:
        tracemalloc.start()
    began = perf_counter()
    with contextlib.redirect_stdout(Discard()):
        synthetic = Synthetic(SPANS, **changes)
        try:
            for number in range(1, points[-1] + 1):
                synthetic.feed() if number % ODD else synthetic.feed(range(synthetic.calls - 1))
                synthetic.session.log(loss=1.0 / number, samples=8)
                synthetic.step()
                if number in points:
                    synthetic.flush()
                    synthetic.check()
                    gc.collect()
                    objects = len(gc.get_objects())  # before the reading: the list itself is a megabyte
                    readings.append(
                        {
                            "steps": number,
                            "seconds": round(perf_counter() - began, 2),
                            "rss_bytes": memory.level_bytes(),
                            "objects": objects,
                            "traced_bytes": tracemalloc.get_traced_memory()[0] if trace else None,
                        }
                    )
        finally:
            synthetic.close()
            memory.close()
            shutil.rmtree(folder, ignore_errors=True)
    return readings


def train(points: Sequence[int], **changes: Any) -> list[dict[str, Any]]:
    """Train a small model with ``changes`` to the default configuration; return the memory at the ``points``."""
    import torch

    import autoprof
    from autoprof._metrics.flop_meter import FlopMeter

    torch.set_num_threads(1)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(16, 16), torch.nn.ReLU())]
    model, x = torch.nn.Sequential(*layers), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    memory, counted, readings, began = HostMemory(), [0], [], perf_counter()
    count = FlopMeter._count

    def measured(meter: FlopMeter, key: tuple[int, ...]) -> None:
        before = memory.level_bytes()
        count(meter, key)
        counted[0] += memory.level_bytes() - before

    with (
        tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder,
        contextlib.redirect_stdout(Discard()),
        patch.object(FlopMeter, "_count", measured),
    ):
        session = autoprof.instrument(model, {"output": folder, **changes}, optimizer=optimizer)
        for step in range(1, points[-1] + 1):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            if step in points:
                readings.append(
                    {
                        "steps": step,
                        "seconds": round(perf_counter() - began, 2),
                        "rss_bytes": memory.level_bytes(),
                        "flop_count_bytes": counted[0],
                    }
                )
        session.close()
    memory.close()
    return readings


def in_a_process(path: str, points: Sequence[int], *, trace: bool = False) -> list[dict[str, Any]]:
    """Run ``drive`` in a new interpreter, so that nothing else is in the readings."""
    command = [sys.executable, "-m", "benchmarks.memory", path, *map(str, points), *(["--trace"] if trace else [])]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parent.parent
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    readings: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return readings


def run(*, quick: bool) -> dict[str, Any]:
    """Drive both paths to a million steps (15,000 when quick), and a shorter way under ``tracemalloc``."""
    points = (10_000, 15_000) if quick else (10_000, 100_000, 1_000_000)
    traced = (10_000, 100_000)
    return {path: in_a_process(path, points) for path in PATHS} | {
        f"{path}_traced": in_a_process(path, traced, trace=True) for path in PATHS if not quick
    }


def main() -> None:
    """Drive one path and print its readings as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("path", choices=[*PATHS, TRAINING])
    parser.add_argument("points", type=int, nargs="+")
    parser.add_argument("--trace", action="store_true", help="also count bytes with tracemalloc, which is slow")
    options = parser.parse_args()
    points = sorted(options.points)
    readings = train(points) if options.path == TRAINING else drive(options.path, points, trace=options.trace)
    print(json.dumps(readings))


if __name__ == "__main__":
    main()
