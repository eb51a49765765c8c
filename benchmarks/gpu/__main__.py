"""``python -m benchmarks.gpu``: the tests, one table and the raw samples as JSON, on a machine with CUDA."""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import warnings
from pathlib import Path
from typing import Any

NO_DEVICE = 2
"""The exit status where there is no such device."""
GRACE_S = 40
"""After the limit of time a part may still end; then the process is ended, with the stacks of all threads."""


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 when something does not hold, 2 where there is no such device."""
    from .run import PARTS, Options, run
    from .table import passed, render
    from .target import NAMES, NoDeviceError, find_target

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="Test autoprof on a GPU and measure its cost."
    )
    parser.add_argument("--device", choices=NAMES, default="cuda", help="sim: try the run on the simulated accelerator")
    parser.add_argument("--quick", action="store_true", help="show that all of it runs: the figures mean nothing")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, by comma (default: %(default)s)")
    parser.add_argument(
        "--models", default="layers,reference,gpt", help="which models, by comma (default: %(default)s)"
    )
    parser.add_argument("--size", choices=("tiny", "small", "large"), help="of the reference workload (default: large)")
    parser.add_argument("--rounds", type=int, help="turns of each variant (default: 20; quick: 1)")
    parser.add_argument("--minutes", type=float, default=9, help="limit of the whole run (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent.parent / "results")
    given = parser.parse_args(arguments)
    try:
        target = find_target(given.device)
    except NoDeviceError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return NO_DEVICE
    options = Options(
        parts=tuple(given.parts.split(",")),
        models=tuple(given.models.split(",")),
        size=given.size or ("tiny" if given.quick else "large"),
        rounds=given.rounds or (1 if given.quick else 20),
        event_steps=20 if given.quick else 1000,
        quick=given.quick,
        seconds=60 * given.minutes,
    )
    name = "gpu" if given.device == "cuda" else f"gpu_{given.device}"
    given.output.mkdir(parents=True, exist_ok=True)
    raw, table = given.output / f"{name}.json", given.output / f"{name}.txt"

    def save(results: dict[str, Any]) -> None:
        raw.write_text(json.dumps(results) + "\n", encoding="utf-8")
        table.write_text(render(results) + "\n", encoding="utf-8")

    warnings.filterwarnings("ignore", message="Full backward hook is firing|For backward hooks to be called")
    faulthandler.dump_traceback_later(options.seconds + GRACE_S, exit=True)
    try:
        results = run(target, options, save)
    finally:
        faulthandler.cancel_dump_traceback_later()
    print(render(results))
    for part, text in results["failed"].items():
        print(f"\n{part}:\n{text}")
    if not results.get("tests", {"passed": True})["passed"]:
        print(f"\n{results['tests']['output']}")
    print(f"\n{table}\n{raw}")
    return 0 if passed(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
