"""``python -m benchmarks.compiled PART``: measure each model of a part in a process of its own, and write a page."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..digest import ROOT
from ..table import parser, write, write_raw

TITLES: Final = {
    "known": "Are rows inside compiled graphs true?",
    "models": "Has every kernel of compiled models an owner?",
}
SECTIONS: Final = {"known": ("known", "growth"), "models": ("families",)}
"""The modules that measure a part, a table of its page each."""
BARE: Final = "bare"
"""Given to the process that fills torch's cache without autoprof."""
PROCESSES: Final = {"known": 1, "models": 2}
"""Processes for each model: a second one finds the code of the first in torch's cache."""
NOTE: Final = (
    "Every module is a target. Each model runs in a process of its own. The referee was written without knowledge of "
    "autoprof's source.\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write. Return 1 where a model is wrong."""
    made = parser("benchmarks.compiled", __doc__)
    made.add_argument("part", choices=TITLES)
    made.add_argument("--only", help="only models with these names, by comma")
    made.add_argument("--limit", type=float, default=300, help="seconds for each process (default: %(default)s)")
    made.add_argument("--cache", type=Path, help="inductor's cache folder (default: a new one)")
    made.add_argument(
        "--warm", action="store_true", help="known: take the graphs from a cache of runs without autoprof"
    )
    made.add_argument("--worker", nargs=3, metavar=("NAME", "GIVEN", "FILE"), help=argparse.SUPPRESS)
    options = made.parse_args(arguments)
    sections = [import_module(f".{name}", __package__) for name in SECTIONS[options.part]]
    if options.worker:
        _work(next(one for one in sections if options.worker[0] in one.names), *options.worker)
        return 0
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="autoprof-compiled-") as folder:
        for section, name in [(one, name) for one in sections for name in one.names]:
            only = section.QUICK if options.quick else options.only
            if only is None or name in only.split(","):
                results[name] = _measure(options, name, options.cache or Path(folder))
                lines = f"{name}: {results[name]['verdict']}", *results[name].get("wrong", ())
                print(*lines, sep="\n  ", file=sys.stderr, flush=True)
                write_raw(options, results)
    pages = [list(one.page({name: results[name] for name in one.names if name in results})) for one in sections]
    result = "; ".join(page[0] for page in pages)
    head = [f"# {TITLES[options.part]}", "", f"**Result**: {result}", "", NOTE]
    write(options, head + [line for page in pages for line in page[1:]])
    return int(any(one["verdict"] in ("wrong", "failed") for one in results.values()))


def _measure(options: argparse.Namespace, name: str, cache: Path) -> dict[str, Any]:
    """Measure a model in a process of its own, or in several, each given the last one's result."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
    given = ""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"
        for first in [BARE] * options.warm + [""] * PROCESSES[options.part]:
            given = first or given
            command = [sys.executable, "-m", "benchmarks.compiled", options.part, "--worker", name, given, str(output)]
            try:
                subprocess.run(
                    command,
                    cwd=ROOT,
                    env=environment,
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=options.limit,
                )
            except subprocess.TimeoutExpired:
                return {"verdict": "failed", "error": f"longer than {options.limit:.0f} s"}
            except subprocess.CalledProcessError as error:
                return {"verdict": "failed", "error": (error.stderr or "no message").strip()[-2000:]}
            given = "" if first else output.read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(given)
    return found


def _work(section: Any, name: str, given: str, output: str) -> None:
    """Measure a model in this process; ``given`` is the JSON of a former process's result."""
    import torch

    warnings.filterwarnings("ignore")  # the models' own, about their configuration
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        if given == BARE:
            found = section.fill(name)
        else:
            found = section.measure(name, json.loads(given)) if given else section.measure(name)
    Path(output).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
