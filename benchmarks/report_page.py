"""Size, time and memory of ``report.html`` for a long run of many modules: ``python -m benchmarks.report_page``.

The records are made up: 100 different steps, repeated. Reading them costs what reading those of a real run costs.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from autoprof._storage.runs import RunFolder
from autoprof._storage.steps_jsonl import FrameEncoder
from autoprof.frame import Layout, Phase, StepFrame

from .browser import CHROMIUM, Browser

DIFFERENT: Final = 100
_STEP: Final = re.compile(r'^\{"step":\d+')


def layout_of(modules: int) -> Layout:
    """Return the layout of a model: blocks of nine modules, forward and backward."""
    names, phases, parents = ["data"], [Phase.DATA], [-1]
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        root = len(names)
        names.append("Model")
        phases.append(phase)
        parents.append(-1)
        for block in range(modules // 10):
            above = len(names)
            names += [f"Model/block{block:04d}", *(f"Model/block{block:04d}/layer{at}" for at in range(9))]
            phases += [phase] * 10
            parents += [root, *[above] * 9]
    count = len(names)
    fqns = tuple(name.lower().replace("/", ".") for name in names)
    return Layout(tuple(names), fqns, tuple(phases), tuple(parents), (1,) * count, (0,) * count)


def write_run(output: Path, modules: int, steps: int) -> Path:
    """Write the records of a run whose modules take random times."""
    layout, random = layout_of(modules), np.random.default_rng(0)
    folder = RunFolder.create(output, name="run", devices=("cpu",))
    parents = np.asarray(layout.parents)
    leaves = np.setdiff1d(np.arange(len(layout)), parents)
    usual = random.lognormal(11, 1, len(leaves))
    encoder, lines = FrameEncoder(), []
    for step in range(1, DIFFERENT + 1):
        times = np.zeros(len(layout), dtype=np.int64)
        times[leaves] = usual * random.lognormal(0, 0.1, len(leaves))
        for span in range(len(layout) - 1, -1, -1):  # children follow their parents
            if parents[span] >= 0:
                times[parents[span]] += times[span]
        whole = int(times[parents < 0].sum() * 1.04)
        starts = np.zeros(len(layout), dtype=np.int64)
        frame = StepFrame(step, 1_763_640_000_000_000_000, whole, layout, starts, times, memory={"rss_bytes": 2**30})
        lines.append(encoder.encode(frame))
    without_layout = [line for line in lines if '"layout":' not in line]
    with (folder.rank_path / "steps.jsonl").open("w", encoding="utf-8") as file:
        file.write(lines[0])
        for step in range(2, steps + 1):
            file.write(_STEP.sub(f'{{"step":{step}', without_layout[step % len(without_layout)]))
    folder.finish("closed")
    return folder.path


def main() -> int:
    """Write a run and its page, open it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100_000)
    arguments = parser.parse_args()
    with TemporaryDirectory() as scratch:
        run = write_run(Path(scratch), arguments.modules, arguments.steps)
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "autoprof", "report", str(run), "--no-open"], check=True)
        found = {
            "modules": arguments.modules,
            "steps": arguments.steps,
            "records_mb": round((run / "rank0/steps.jsonl").stat().st_size / 1e6, 1),
            "page_mb": round((run / "report.html").stat().st_size / 1e6, 2),
            "write_s": round(time.perf_counter() - begin, 1),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        }
        if CHROMIUM is not None:
            browser = Browser(Path(scratch) / "profile")
            begin = time.perf_counter()
            browser.open(run / "report.html")
            found["open_s"] = round(time.perf_counter() - begin, 2)
            browser.close()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
