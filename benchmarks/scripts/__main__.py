"""``python -m benchmarks.scripts``: run scripts of other projects by ``autoprof run``; write the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoprof.base.summary import OTHER_TARGETS

from ..digest import ROOT
from ..table import parser, write, write_raw
from .registry import SCRIPTS, Script
from .report import is_right, page


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scripts and write the page. Return 1 where one gives no result or its steps are wrong."""
    made = parser("benchmarks.scripts", __doc__)
    made.add_argument("--checkouts", type=Path, required=True, help="the folder that benchmarks.scripts.prepare filled")
    made.add_argument("--python", default=sys.executable, help="a Python with the packages of the scripts")
    made.add_argument("--only", metavar="PATTERN", default="", help="scripts whose name the expression finds")
    made.add_argument("--limit", type=float, default=180, help="seconds a script may take (default: %(default)s)")
    options = made.parse_args(arguments)
    results: dict[str, Any] = {}
    pattern = "^MNIST" if options.quick else options.only
    for script in SCRIPTS:
        if re.search(pattern, script.name, re.IGNORECASE):
            results[script.name] = run(script, options.checkouts.absolute(), options.python, options.limit)
            print(f"{script.name}: {results[script.name]}", file=sys.stderr, flush=True)
            write_raw(options, results)
    write(options, page(results))
    return int(not all(is_right(script, results[script.name]) for script in SCRIPTS if script.name in results))


def run(script: Script, checkouts: Path, python: str, limit_s: float) -> dict[str, Any]:
    """Run a script by autoprof; return its steps by its own optimizers and by autoprof.

    Where it ends with an error it runs again, bare, which says whether the error is the script's own.
    """
    checkout = checkouts / script.checkout
    if not checkout.is_dir():
        return {"error": "no checkout: python -m benchmarks.scripts.prepare makes it"}
    out = checkouts / "out" / re.sub(r"\W+", "_", script.name)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    folders = {"checkout": checkout, "data": checkouts / "data", "out": out}
    path = [str(Path(__file__).parent / "counter"), str(ROOT)]
    if script.on_path:
        path.append(str(checkout / script.on_path))
    environment = {
        **os.environ, "COUNTER_FOLDER": str(out), "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    }  # fmt: skip
    arguments = [one.format(**folders) for one in script.command.split()]
    place = script.folder.format(**folders) or checkout

    def status(*prefix: str) -> int | None:
        with (out / "printed.txt").open("a") as printed:
            process = subprocess.Popen(
                [python, *prefix, *arguments], cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=printed,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                return process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that the script started
                process.wait()
                return None

    ended = status("-m", "autoprof", "run", "--output", str(out / "runs"))
    counted = [json.loads(path.read_text())["counts"] for path in sorted(out.glob("*.json"))]
    if ended is None:
        return {"error": f"not finished after {limit_s:.0f} s"}
    if ended:
        return {"error": f"ends with an error{' without autoprof too' if status() else ', and not without autoprof'}"}
    runs = [_found(path.parent) for path in sorted((out / "runs").glob("*/summary.json"))]
    return {"load": os.getloadavg()[0], "counted": counted, "runs": runs}


def _found(folder: Path) -> dict[str, Any]:
    """Return the steps, the overhead and the findings of a run."""
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    findings = [one for one in summary["findings"] if one["severity"] != "info"]
    rows = [row for row in summary["rows"] if row["phase"] in ("forward", "backward") and row["name"]]
    longest = max(rows, key=lambda row: row["self_ns"], default=None)
    return {
        "steps": sum(summary[key] for key in ("steps", "warmup_steps", "unsampled_steps"))
        + summary["skipped"].get(OTHER_TARGETS, 0),
        "overhead": summary["overhead"],
        "findings": [[one["rule"], one["name"], one["phase"]] for one in findings],
        "longest": None if longest is None else [longest["name"], longest["phase"], longest["share"]],
    }


if __name__ == "__main__":
    sys.exit(main())
