"""Run one program in this process and write its comparison: ``python -m tests.acceptance.worker NAME FILE``."""

import json
import sys
import time
import traceback
from pathlib import Path

import torch

from .parts import clock_checkpoints
from .registry import programs


def main(name: str, result: Path) -> int:
    """Run the program; an exception that leaves it is part of the result."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    clock_checkpoints()
    began = time.perf_counter()
    try:
        checks = [check.to_dict() for check in programs()[name].run().checks]
        error = None if checks else "the program compared nothing"
    except Exception as raised:
        checks, error = [], f"raised {type(raised).__name__}: {raised}"
        traceback.print_exc()
    answer = {"checks": checks, "error": error, "seconds": round(time.perf_counter() - began, 2)}
    result.write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2])))
