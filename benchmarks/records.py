"""``python -m benchmarks.records``: size of the records and the log of many steps, time to write and to read them.

A model of 200 modules is trained with every step recorded. The frames of its steps are written over and over, as many
as asked for, by the sinks ``jsonl`` and ``log`` with the limit of the default configuration.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

import autoprof
from autoprof._storage.runs import RunFolder, read_run
from autoprof._storage.steps_jsonl import FrameEncoder
from autoprof.frame import StepFrame
from autoprof.sinks import RunInfo, Sink
from autoprof.sinks.jsonl import JsonlOptions, JsonlSink
from autoprof.sinks.log import LogOptions, LogSink
from autoprof.summary import Summary
from autoprof.testing import ListSink

MODULES: Final = 200
TRAINED_STEPS: Final = 2000
IN_LINES_STEPS: Final = 1000
"""Steps written in the form of older runs, with all times in the lines."""
SHARE_BYTES: Final = 450_000_000
"""The limit of each of two files that grow, with ``output_max_mb: 1000``."""


def train(steps: int, modules: int) -> list[StepFrame]:
    """Train a chain of linear layers, and return the frames of its steps."""
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(modules)))
    optimizer, sink = torch.optim.SGD(model.parameters(), lr=1e-3), ListSink()
    config = {"targets": [{"match": ".*"}], "sample": {"budget": None}, "sinks": {}}
    samples = torch.randn(16, 64)
    with autoprof.instrument(model, config, optimizer=optimizer, sinks=[sink]) as session:
        for _ in range(steps):
            loss = model(samples).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.log(loss=loss, lr=1e-3)
            session.step()
    return sink.frames


def repeat(frames: list[StepFrame], steps: int) -> Iterator[StepFrame]:
    """Yield as many frames, numbered through; warm-up only at the begin."""
    for step in range(1, steps + 1):
        frame = frames[(step - 1) % len(frames)]
        yield StepFrame.of(**{**vars(frame), "step": step, "warmup": frame.warmup and step == frame.step})


def write(sink: Sink, frames: list[StepFrame], steps: int) -> float:
    """Write the frames to a sink; return its seconds."""
    seconds = 0.0
    for frame in repeat(frames, steps):
        began = time.process_time()
        sink.write(frame)
        seconds += time.process_time() - began
    began = time.process_time()
    sink.close(Summary.empty())
    return seconds + time.process_time() - began


def measure(steps: int, log_steps: int, modules: int) -> dict[str, Any]:
    """Measure sizes and seconds; in each place bytes and µs are those of one step."""
    frames = train(TRAINED_STEPS, modules)
    with tempfile.TemporaryDirectory() as output:
        folder = RunFolder.create(output)
        run = RunInfo(folder, 0, io.StringIO(), max_bytes=SHARE_BYTES)
        records_s = write(JsonlSink(JsonlOptions(), run), frames, steps)
        sizes = {path.name: path.stat().st_size for path in sorted(folder.rank_path.iterdir())}
        log_s = write(LogSink(LogOptions(), run), frames, log_steps)
        log_bytes = sum(path.stat().st_size for path in folder.rank_path.glob("timing.log*"))
        began, cpu = time.perf_counter(), time.process_time()
        read = sum(1 for _ in read_run(folder.path).frames)
        read_s, read_cpu_s = time.perf_counter() - began, time.process_time() - cpu
    encoder, began = FrameEncoder(), time.process_time()
    lines = sum(len(encoder.encode(frame)) for frame in repeat(frames, IN_LINES_STEPS))
    lines_s = time.process_time() - began
    return {
        "modules": modules,
        "spans": len(frames[-1].layout),
        "steps": steps,
        "files": sizes,
        "bytes": sum(sizes.values()),
        "bytes_a_step": sum(sizes.values()) / steps,
        "write_us_a_step": 1e6 * records_s / steps,
        "read_steps": read,
        "read_s": read_s,
        "read_cpu_s": read_cpu_s,
        "log_steps": log_steps,
        "log_bytes": log_bytes,
        "log_us_a_step": 1e6 * log_s / log_steps,
        "in_lines_bytes_a_step": lines / IN_LINES_STEPS,
        "in_lines_us_a_step": 1e6 * lines_s / IN_LINES_STEPS,
    }


def table(found: dict[str, Any]) -> list[str]:
    """Return the results as lines of a table."""
    rows = [
        (f"records of {found['steps']:,} steps of {found['spans']} spans", f"{found['bytes'] / 1e6:.1f} MB"),
        *((f"  of that {name}", f"{size / 1e6:.1f} MB") for name, size in found["files"].items()),
        ("a step", f"{found['bytes_a_step']:.0f} bytes"),
        ("a step with its times in the line (older runs)", f"{found['in_lines_bytes_a_step']:.0f} bytes"),
        (f"reading {found['read_steps']:,} steps", f"{found['read_s']:.1f} s"),
        ("writing a step", f"{found['write_us_a_step']:.0f} µs"),
        ("writing a step with its times in the line", f"{found['in_lines_us_a_step']:.0f} µs"),
        (f"timing.log after {found['log_steps']:,} steps", f"{found['log_bytes'] / 1e6:.0f} MB"),
        ("writing a section of timing.log", f"{found['log_us_a_step']:.0f} µs"),
    ]
    return [f"{label:<52}{figure:>14}" for label, figure in rows]


def main() -> int:
    """Print the table; ``--json`` writes the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="steps of the records")
    parser.add_argument("--log-steps", type=int, default=25_000, help="steps of the log, which takes longer")
    parser.add_argument("--modules", type=int, default=MODULES, help="modules of the model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    arguments = parser.parse_args()
    found = measure(arguments.steps, arguments.log_steps, arguments.modules)
    print("\n".join(table(found)))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
