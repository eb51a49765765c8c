"""One training in a process of its own, to read its longest steps or its memory.

``times`` saves the time of each step; ``memory`` prints the resident memory after some of them.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

LANES: Final = ("bare", "autoprof")


def make(rest_ns: int = 0) -> tuple[nn.Module, Callable[[], object]]:
    """Return a small model and its step; ``rest_ns`` is a loop in each step that makes it longer."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.ReLU())]
    model, x = nn.Sequential(*layers), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        if rest_ns:
            until = time.perf_counter_ns() + rest_ns
            while time.perf_counter_ns() < until:
                pass

    return model, step


@contextlib.contextmanager
def _recorded(lane: str, model: nn.Module, **changes: Any) -> Any:
    """Have the model recorded inside the block, by default with these changes; only the folder is another one."""
    if lane == "bare":
        yield
        return
    import autoprof

    with tempfile.TemporaryDirectory(prefix="autoprof-bench-") as folder:
        session = autoprof.instrument(model, {"output": folder, **changes})
        try:
            yield
        finally:
            session.close()


def times(lane: str, steps: int, rest_ns: int, path: Path) -> None:
    """Save the time of each step, from its begin to the next one's, and the processor's time."""
    model, step = make(rest_ns)
    wall, busy = (np.zeros(steps + 1, dtype=np.int64) for _ in range(2))
    with _recorded(lane, model):
        for number in range(steps + 1):
            busy[number], wall[number] = time.thread_time_ns(), time.perf_counter_ns()
            step()
    np.save(path, np.diff(np.stack([wall, busy])))


def memory(points: Sequence[int]) -> list[dict[str, int]]:
    """Record every step, with all default sinks; return the resident memory after some of them."""
    model, step = make()
    readings = []
    with _recorded("autoprof", model, sample={"budget": None}):
        for number in range(1, points[-1] + 1):
            step()
            if number in points:
                gc.collect()
                readings.append({"steps": number, "rss_bytes": resident_bytes()})
    return readings


def resident_bytes() -> int:
    """Return the resident memory of this process: on Linux now, elsewhere at its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make one training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=("times", "memory"))
    parser.add_argument("--lane", choices=LANES, default="autoprof")
    parser.add_argument("--steps", type=int, nargs="+", required=True, help="how many, or the points of memory")
    parser.add_argument("--rest-ns", type=int, default=0)
    parser.add_argument("--save", type=Path, required=True, help="the file of the results")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.work == "times":
        times(options.lane, options.steps[0], options.rest_ns, options.save)
    else:
        options.save.write_text(json.dumps(memory(options.steps)), encoding="utf-8")


if __name__ == "__main__":
    main()
