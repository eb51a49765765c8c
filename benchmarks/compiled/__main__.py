"""``python -m benchmarks.compiled``: each model in a process of its own, every number as JSON, and a page of tables."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..machine import describe
from .page import render

ROOT: Final = Path(__file__).resolve().parents[2]
PARTS: Final = {"truth": 1, "growth": 1, "models": 2, "cost": 1}
"""The parts in their order, each with the number of processes that a model has."""
MODULES: Final = {"models": "families"}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compiled", description="Referee the rows inside graphs of torch.compile."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--only", help="only models with these names, by comma")
    parser.add_argument("--again", action="store_true", help="measure models that the JSON has already")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each process (default: %(default)s)")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "autoprof-compiled", help="inductor's cache folder"
    )
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the results (%(default)s)"
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Run what the JSON does not have, and write both files after each model."""
    options = parse(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "compiled.json"
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for part in options.parts or PARTS:
        measured = results.setdefault(part, {})
        for name in import_module(f".{MODULES.get(part, part)}", __package__).names:
            if (options.only and name not in options.only.split(",")) or (name in measured and not options.again):
                continue
            before = measured.get(name)
            measured[name] = {**measure(part, name, options)}
            if before:  # a result that is measured again stays in sight
                former = {key: before[key] for key in ("verdict", "wrong", "error") if key in before}
                measured[name]["former"] = [*before.get("former", ()), former]
            lines = f"{part} {name}: {measured[name]['verdict']}", *measured[name].get("wrong", ())
            print(*lines, sep="\n  ", flush=True)
            results["machine"] = describe()
            path.write_text(json.dumps(results, indent=0) + "\n", encoding="utf-8")
            (options.output / "compiled.md").write_text(render(results), encoding="utf-8")
    return 0


def measure(part: str, name: str, options: argparse.Namespace) -> Mapping[str, Any]:
    """Measure a model in a process of its own, or in several, each given the last one's result."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(options.cache / part)}
    given = ""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"
        for _ in range(PARTS[part]):
            module = MODULES.get(part, part)
            command = [sys.executable, "-m", f"{__package__}.worker", module, name, given, str(output)]
            try:
                options_of_run: dict[str, Any] = {"capture_output": True, "text": True, "timeout": options.limit}
                subprocess.run(command, cwd=ROOT, env=environment, check=True, **options_of_run)
            except subprocess.TimeoutExpired:
                return {"verdict": "not run", "error": f"longer than {options.limit:.0f} s"}
            except subprocess.CalledProcessError as error:
                return {"verdict": "failed", "error": (error.stderr or "no message").strip()[-2000:]}
            given = output.read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(given)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
