"""``python -m benchmarks.truth``: the table, every number as JSON, and the page in the docs."""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import torch

from ..machine import describe
from .compare import Result, referee_case
from .models import chosen
from .report import render, render_modules, render_page, verdict

ROOT = Path(__file__).resolve().parents[2]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.truth", description="Compare autoprof's times with torch.profiler's, step by step."
    )
    parser.add_argument("--models", help="only models whose name has one of these words, by comma")
    parser.add_argument("--steps", type=int, default=9, help="steps that count, of each model (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch's CPU threads (default: %(default)s)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--modules", action="store_true", help="print every module, not only the largest errors")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks" / "results", help="folder for truth.json (%(default)s)"
    )
    parser.add_argument(
        "--page", type=Path, default=ROOT / "benchmarks" / "results" / "truth.md", help="the page (%(default)s)"
    )
    given = parser.parse_args(arguments)
    if given.steps < 1:
        parser.error("--steps: must be at least 1")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 when a bound is missed."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")  # the models' own, about their configuration
    results: list[Result] = []
    skipped: list[str] = []
    for case in chosen(options.models):
        if not case.available:
            skipped.append(f"{case.name} ({case.needs} is not installed)")
            continue
        result = referee_case(case, torch.device(options.device), options.steps)
        results.append(result)
        if options.modules:
            print(render_modules(result), flush=True)
    machine = describe()
    print(render(results, skipped))
    options.output.mkdir(parents=True, exist_ok=True)
    raw = {"machine": machine, "skipped": skipped, "results": [result.to_dict() for result in results]}
    (options.output / "truth.json").write_text(json.dumps(raw, separators=(",", ":")) + "\n", encoding="utf-8")
    options.page.write_text(render_page(results, skipped, machine), encoding="utf-8")
    return int(not all(reached for _, reached in verdict(results)))


if __name__ == "__main__":
    raise SystemExit(main())
