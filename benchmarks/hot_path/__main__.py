"""``python -m benchmarks.hot_path``: the comparison, every number as JSON, and the page in the docs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from ..machine import describe
from .agreement import Agreement, Record
from .models import Case, chosen
from .page import render, render_page

ROOT: Final = Path(__file__).resolve().parents[2]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hot_path",
        description="Compare a run without a configuration with a record of every module.",
    )
    parser.add_argument("--only", help="only models whose name has one of these words, by comma")
    parser.add_argument("--steps", type=int, default=200, help="training steps of each run (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks" / "results", help="folder for hot_path.json (%(default)s)"
    )
    parser.add_argument(
        "--page", type=Path, default=ROOT / "benchmarks" / "results" / "hot_path.md", help="the page (%(default)s)"
    )
    given = parser.parse_args(arguments)
    if given.steps < 1:
        parser.error("--steps: must be at least 1")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 when a model disagrees or fails."""
    options = parse(arguments)
    torch.set_num_threads(1)
    options.output.mkdir(parents=True, exist_ok=True)
    machine = describe()
    results: list[Agreement] = []
    skipped: list[str] = []
    failed = False
    for case in chosen(options.only):
        if not case.available:
            skipped.append(f"{case.name} ({case.needs} is not installed)")
            continue
        try:
            results.append(compare(case, options.steps))
        except subprocess.CalledProcessError as error:
            failed = True
            skipped.append(f"{case.name}: {(error.stderr or 'no message').strip().splitlines()[-1]}")
        else:
            print(render(results[-1:], []), flush=True)
        write(options, machine, results, skipped)  # after each model: a run takes minutes
    write(options, machine, results, skipped)
    print(render(results, skipped))
    return int(failed or any(result.problems for result in results))


def write(
    options: argparse.Namespace, machine: Mapping[str, Any], results: Sequence[Agreement], skipped: Sequence[str]
) -> None:
    """Write the numbers and the page."""
    raw = {"machine": machine, "skipped": skipped, "results": [result.to_dict() for result in results]}
    (options.output / "hot_path.json").write_text(json.dumps(raw, separators=(",", ":")) + "\n", encoding="utf-8")
    options.page.write_text(render_page(results, skipped, machine), encoding="utf-8")


def compare(case: Case, steps: int) -> Agreement:
    """Train the model in a process of its own: by default, and with a full record before and after."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "records.json"
        command = [sys.executable, "-m", "benchmarks.hot_path.worker", case.name, str(steps), str(output)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        records = {kind: Record(**one) for kind, one in json.loads(output.read_text(encoding="utf-8")).items()}
    return Agreement(case.name, steps, records["default"], records["before"].averaged_with(records["after"]))


if __name__ == "__main__":
    raise SystemExit(main())
