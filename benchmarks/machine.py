"""The machine that the numbers belong to."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import torch

import autoprof

_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
"""Options of ``mallopt``, from ``malloc.h``."""


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


def keep_memory() -> bool:
    """Have glibc keep freed memory for the next step; return False with another allocator.

    By default it returns the free memory at the end of the heap to the system, and gets it back page by page, each with
    a fault. How often that happens differs from process to process, by more than the difference measured here.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1) and mallopt(_MMAP_MAX, 0))


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
