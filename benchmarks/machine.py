"""The machine that the numbers belong to."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch

import autoprof

from .engine import marks_are_in


def clock_cost_ns(repetitions: int = 9, count: int = 20_000) -> float:
    """Return the cost of one call of ``perf_counter_ns`` without the loop around it."""

    def loop(call: Callable[[], int] | None) -> int:
        calls = range(count)
        began = perf_counter_ns()
        if call is None:
            for _ in calls:
                pass
        else:
            for _ in calls:
                call()
        return perf_counter_ns() - began

    return median((loop(perf_counter_ns) - loop(None)) / count for _ in range(repetitions))


def describe() -> dict[str, Any]:
    """Name the processor, the versions and the load."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "autoprof": autoprof.__version__,
        "marks": marks_are_in(),
        "threads": torch.get_num_threads(),
        "clock_ns": round(clock_cost_ns(), 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
