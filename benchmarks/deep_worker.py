"""A process that trains, and captures on request; ``benchmarks.deep`` starts it and requests blocks."""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch.profiler import profile

import autoprof
from autoprof._targets import select_targets
from autoprof.config import load_config
from autoprof.deep import DeepOptions
from autoprof.deep.capture import Capture

from .interleave import time_steps
from .workloads import BUILDERS, CLOCKS, Workload

KINDS: Final = ("window", "block", "profiler", "figures", "nothing")


@contextmanager
def capturing(kind: str, workload: Workload, folder: str, warn: Callable[[str], None]) -> Iterator[None]:
    """Run a kind of capture around some steps."""
    if kind == "block":
        with autoprof.deep_capture(workload.model, workload.config, folder=folder, max_steps=100):
            yield
    elif kind == "window":
        targets = select_targets(workload.model, load_config(workload.config)).targets
        capture = Capture(DeepOptions(), Path(folder), "steps", 0, targets=targets, warn=warn)
        capture.begin()
        yield
        capture.end()
    elif kind == "profiler":
        with profile(profile_memory=True):
            yield
    elif kind == "nothing":
        yield
    else:
        yield
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure()
        FigureCanvasAgg(figure)
        figure.subplots().plot([1, 2])
        figure.savefig(Path(folder) / "figure.png")


def main(descriptor: str, name: str, size: str, threads: str, clock: str, kind: str) -> None:
    """Run blocks of steps, bare or captured, until the end is requested."""
    pipe: Connection[Any, Any] = Connection(int(descriptor))
    torch.set_num_threads(int(threads))
    workload = BUILDERS[name](torch.device("cuda" if torch.cuda.is_available() else "cpu"), size)
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        captured, steps = asked
        gc.collect()
        if not captured:
            pipe.send((time_steps(workload.step, steps, workload.synchronize, clock=CLOCKS[clock]), 0, 0, []))
            continue
        notes: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            began = perf_counter_ns()
            with capturing(kind, workload, folder, notes.append):
                entered = perf_counter_ns()
                times = time_steps(workload.step, steps, workload.synchronize, clock=CLOCKS[clock])
                left = perf_counter_ns()
            ended = perf_counter_ns()
        pipe.send((times, entered - began, ended - left, notes))


if __name__ == "__main__":
    main(*sys.argv[1:])
