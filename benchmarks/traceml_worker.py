"""The process that trains under traceml-ai; ``benchmarks.traceml`` starts it and asks it for blocks."""

from __future__ import annotations

import gc
import sys
from multiprocessing.connection import Connection
from typing import Any

import torch

from .interleave import time_steps
from .workloads import BUILDERS


def main(descriptor: str, name: str, size: str, threads: str, port: str, folder: str) -> None:
    """Instrument everything that traceml instruments, then run blocks until the end is requested."""
    import traceml_ai

    pipe: Connection[Any, Any] = Connection(int(descriptor))
    torch.set_num_threads(int(threads))
    traceml_ai.init(mode="auto", aggregator_port=int(port), logs_dir=folder, on_missing_aggregator="raise")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    workload = BUILDERS[name](device, size)

    def step() -> None:
        with traceml_ai.trace_step(workload.model):
            workload.step()

    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        warmup, steps = asked
        for _ in range(warmup):
            step()
        gc.collect()
        pipe.send(time_steps(step, steps, workload.synchronize))


if __name__ == "__main__":
    main(*sys.argv[1:])
