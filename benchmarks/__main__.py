"""``python -m benchmarks``: one table, the raw samples as JSON, and a plot."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from .options import parse


def save(results: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write ``benchmarks.json`` and ``benchmarks.png``; return their paths."""
    from .plot import draw

    folder.mkdir(parents=True, exist_ok=True)
    raw, picture = folder / "benchmarks.json", folder / "benchmarks.png"
    raw.write_text(json.dumps(results) + "\n", encoding="utf-8")
    draw(results, picture)
    return raw, picture


def main(arguments: list[str] | None = None, *, keep: bool = False) -> int:
    """Run, print, write. Return 1 when a bound is missed. ``keep`` has this process keep freed memory from now on."""
    options = parse(arguments)
    from .machine import keep_memory
    from .run import run
    from .table import render
    from .verdict import verdict

    if options.report is not None:
        results = json.loads(options.report.read_text(encoding="utf-8"))
    else:
        # Warnings of register_full_backward_hook about inputs without a gradient and outputs that are lists.
        warnings.filterwarnings("ignore", message="Full backward hook is firing|For backward hooks to be called")
        kept = keep and keep_memory()
        results = run(options)
        results["machine"]["memory_kept"] = kept
    bounds = verdict(results)
    results["verdict"] = [bound.to_dict() for bound in bounds]
    print(render(results, bounds))
    raw, picture = save(results, options.output)
    print(f"\n{raw}\n{picture}")
    return int(any(bound.passed is False for bound in bounds))


if __name__ == "__main__":
    raise SystemExit(main(keep=True))
