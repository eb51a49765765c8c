"""Measure one model of one part in this process, and write the result as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch


def main(part: str, name: str, given: str, output: Path) -> None:
    """Measure the model; ``given`` is the JSON of a former process's result, where the part has several processes."""
    warnings.filterwarnings("ignore")  # the models' own, about their configuration
    torch.set_num_threads(1)
    measure: Callable[..., Any] = import_module(f"benchmarks.compiled.{part}").measure
    with contextlib.redirect_stdout(sys.stderr):
        found = measure(name, json.loads(given)) if given else measure(name)
    output.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
