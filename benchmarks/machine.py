"""The machine that the numbers belong to."""

from __future__ import annotations

import ctypes
import os
import platform
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import torch

_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
"""Options of ``mallopt``, from ``malloc.h``."""


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
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
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
