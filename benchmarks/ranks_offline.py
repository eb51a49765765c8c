"""``python -m benchmarks.ranks_offline``: time and memory of ``autoprof ranks`` on the records of 1,024 ranks.

The folder is written first, with real files and a known slow rank (``rank_folders``); the command runs in its own
process. Peak memory is the resident memory that the kernel counts, DuckDB's included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from autoprof.frame import Phase

from .machine import describe
from .rank_folders import SlowBlock, write_ranks

RESULTS: Final = Path(__file__).resolve().parent / "results" / "ranks_offline.json"
MAX_SECONDS: Final = 60.0
MAX_BYTES: Final = 2 * 10**9
_WORKER: Final = """
import contextlib, io, json, resource, sys, time
began, used = time.perf_counter(), time.process_time()
from autoprof.cli import main
text = io.StringIO()
with contextlib.redirect_stdout(text):
    status = main(["ranks", sys.argv[1], "--json"])
seconds, cpu = time.perf_counter() - began, time.process_time() - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
report = json.loads(text.getvalue())
print(json.dumps({"status": status, "seconds": seconds, "cpu_s": cpu, "peak_bytes": peak,
                  "ranks": len(report["compared_ranks"]), "steps": report["recorded_steps"],
                  "left_out": len(report["left_out"]), "slow": max(report["ranks"], key=lambda row: row["excess_ns"])}))
"""


def measure(run: Path) -> dict[str, Any]:
    """Run the command on a folder in its own process."""
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", _WORKER, str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    return {**result, "folder_bytes": size}


def main(arguments: list[str] | None = None) -> int:
    """Write the folder, read it, print the result; return 1 when a bound is missed or the slow rank is not named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks_offline", description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024, help="ranks of the run (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each rank (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="times that it is read (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where to write the JSON")
    options = parser.parse_args(arguments)
    slow = SlowBlock(options.ranks // 3, 4, Phase.BACKWARD, 5_000_000)
    with tempfile.TemporaryDirectory() as folder:
        run = write_ranks(Path(folder), options.ranks, range(1, options.steps + 1), slow, processes=os.cpu_count() or 1)
        found = [measure(run) for _ in range(options.rounds)]
    is_named = all(one["slow"]["rank"] == slow.rank and one["slow"]["name"] == slow.name for one in found)
    seconds, peak = max(one["seconds"] for one in found), max(one["peak_bytes"] for one in found)
    print(
        f"{options.ranks:,} ranks x {options.steps:,} steps, {found[0]['folder_bytes'] / 1e6:,.0f} MB, "
        f"longest of {len(found)}"
    )
    print(f"  {seconds:.1f} s (bound {MAX_SECONDS:.0f} s), {max(one['cpu_s'] for one in found):.1f} s of processors")
    print(f"  {peak / 1e6:,.0f} MB (bound {MAX_BYTES / 1e6:,.0f} MB)")
    print(f"  slow rank {'named' if is_named else 'NOT NAMED'}: {slow.rank}, {slow.name}, {slow.phase}")
    results = {"machine": describe(), "ranks": options.ranks, "steps": options.steps, "rounds": found}
    options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(seconds > MAX_SECONDS or peak > MAX_BYTES or not is_named)


if __name__ == "__main__":
    raise SystemExit(main())
