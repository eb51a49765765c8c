"""``python -m benchmarks.logs``: time and memory of ``load_logs`` on logs of a million lines.

Each log is generated and read in its own process. Peak memory is the resident memory that the kernel counts, with the
part of the imported packages beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

_WORKER: Final = """
import json, resource, sys, time
from autoprof.logs import load_logs
import pandas
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began, used = time.perf_counter(), time.process_time()
df = load_logs(sys.argv[1])
seconds, cpu = time.perf_counter() - began, time.process_time() - used
entry = df.attrs["files"][0]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "cpu_s": cpu, "peak_kib": peak, "imports_kib": before, "rows": len(df),
                  "columns": len(df.columns), "reader": entry["reader"], "skipped": entry["skipped"]}))
"""


def jsonl(count: int) -> Iterator[str]:
    """Yield JSON records with the fields of the first tool, and a foreign line after each thousand."""
    draw = random.Random(0)
    for step in range(count):
        if step % 1000 == 999:
            yield "Saving checkpoint ..."
            continue
        seconds = 0.12 + 0.01 * draw.random()
        yield json.dumps(
            {"step": step, "loss": draw.random(), "throughput": 64 / seconds, "step_time_s": seconds, "lr": 1e-4,
             "grad_norm": 1.0}
        )  # fmt: skip


def text(count: int) -> Iterator[str]:
    """Yield lines of a nanoGPT-like loop behind a time."""
    draw = random.Random(0)
    for step in range(count):
        if step % 1000 == 999:
            yield "saving checkpoint to out"
            continue
        clock = f"2026-11-20 {step // 3600 % 24:02}:{step // 60 % 60:02}:{step % 60:02}"
        yield (
            f"{clock} INFO step {step} | loss: {draw.random():.6f} | lr 3.0000e-04 | norm: {draw.random():.4f} "
            f"| dt: {300 + 20 * draw.random():.2f}ms | tok/sec: {1e5 * draw.random():.2f}"
        )


def megatron(count: int) -> Iterator[str]:
    """Yield Megatron's lines: 330 characters, ten numbers."""
    draw = random.Random(0)
    for step in range(count):
        yield (
            f" [2026-11-20 10:00:00.123456] iteration {step:8d}/ 1000000 | consumed samples: {step * 256:12d} | "
            f"elapsed time per iteration (ms): {500 + 20 * draw.random():.1f} | throughput per GPU (TFLOP/s/GPU): "
            f"{300 * draw.random():.1f} | learning rate: 1.000000E-04 | global batch size:   256 | lm loss: "
            f"{draw.random():.6E} | loss scale: 65536.0 | grad norm: {draw.random():.3f} | "
            f"number of skipped iterations:   0 | number of nan iterations:   0 |"
        )


LOGS: Final[dict[str, Callable[[int], Iterator[str]]]] = {
    "JSON lines": jsonl,
    "text": text,
    "Megatron's text": megatron,
}


def measure(lines: Iterator[str], folder: Path) -> dict[str, Any]:
    """Write the log and read it in its own process."""
    path = folder / "log"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    found = subprocess.run([sys.executable, "-c", _WORKER, str(path)], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(found.stdout)
    return {**result, "bytes": path.stat().st_size}


def main(arguments: list[str] | None = None) -> int:
    """Print a row per log."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logs", description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    count = parser.parse_args(arguments).lines
    print(
        f"| {count:,} lines of | MB | s | CPU s | lines/s | peak RSS, MiB | of it packages | rows x columns | skipped |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, make in LOGS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = measure(make(count), Path(folder))
        sizes = f"{found['peak_kib'] / 1024:.0f} | {found['imports_kib'] / 1024:.0f}"
        speed = f"{found['seconds']:.1f} | {found['cpu_s']:.1f} | {count / found['seconds']:,.0f}"
        rows = f"{found['rows']:,} x {found['columns']} | {found['skipped']:,}"
        print(f"| {name} ({found['reader']}) | {found['bytes'] / 1e6:.0f} | {speed} | {sizes} | {rows} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
