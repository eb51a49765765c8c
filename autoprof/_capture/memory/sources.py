"""Where bytes come from: the process's resident set, or the device allocator's counters. Nothing here resets them."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from time import perf_counter_ns
from typing import Any, Final

import torch

if sys.platform != "win32":
    import resource

READ_EVERY_NS: Final = 20_000_000
"""The least time between two readings at a step's end: at 10 µs each they stay below a thousandth of the run."""
CGROUP_LIMIT: Final = "/sys/fs/cgroup/memory.max"
"""What a container may use, in version 2 of control groups: bytes, or ``max``."""
COUNTS: Final = frozenset({"alloc_retries", "ooms"})
"""Readings that count events: how often the allocator gave its cache back to get memory, and how often in vain."""


class Memory(ABC):
    """A source of bytes: ``at_mark`` at a mark, ``readings`` at a step's end."""

    _due_ns = 0
    spent_ns = 0
    """What readings at marks took since somebody last asked; they are dearer than the marks themselves."""

    @abstractmethod
    def level_bytes(self) -> int:
        """Return the bytes in use now."""

    def at_mark(self) -> tuple[int, ...]:
        """Return the level; of a caching allocator also its running peak and what it has reserved."""
        return (self.level_bytes(),)

    @abstractmethod
    def readings(self) -> dict[str, int]:
        """Return what a step's end reports, by name: bytes, but for the counts in ``COUNTS``."""

    def on(self, device: int) -> Memory:
        """Return the source of bytes of another device of the kind; ``close`` of this one closes it."""
        return self

    def at_step_end(self) -> dict[str, int]:
        """Return the readings, or nothing when they were read just now: on tiny steps they would cost the most."""
        now = perf_counter_ns()
        if now < self._due_ns:
            return {}
        self._due_ns = now + READ_EVERY_NS
        return self.readings()

    def capacity_bytes(self) -> int | None:
        """Return the bytes that there are at all; None where nobody says."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Give back what the source holds open."""


class HostMemory(Memory):
    """Read the resident set of this process. On Linux one ``pread`` of an open file, about 1.5 µs."""

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._statm = -1

    def level_bytes(self) -> int:
        """Return the resident set size, or its peak where the system tells no more."""
        if self._statm < 0:
            return self.peak_bytes()
        return int(os.pread(self._statm, 64, 0).split()[1]) * self._page

    def peak_bytes(self) -> int:
        """Return the largest resident set so far."""
        if sys.platform == "win32":
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def readings(self) -> dict[str, int]:
        """Return what a step's end reports: ``rss_bytes`` and ``rss_peak_bytes``."""
        level = self.level_bytes()
        return {"rss_bytes": level, "rss_peak_bytes": max(level, self.peak_bytes())}  # the kernel's two counts differ

    def capacity_bytes(self) -> int | None:
        """Return the machine's memory, or what a container may use of it."""
        try:
            installed = os.sysconf("SC_PHYS_PAGES") * self._page
        except (AttributeError, OSError, ValueError):
            return None
        try:
            with open(CGROUP_LIMIT, encoding="ascii") as file:
                return min(installed, int(file.read()))
        except (OSError, ValueError):  # no such file, or "max"
            return installed

    def close(self) -> None:
        """Close the file; readings after it fall back to the peak."""
        if self._statm >= 0:
            statm, self._statm = self._statm, -1
            os.close(statm)


class DeviceMemory(Memory):
    """Read the caching allocator's counters of one CUDA device: tens of µs, for it builds the whole dictionary.

    The peak is the allocator's own, since the user last reset it.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._host = HostMemory()
        self._others: dict[int, DeviceMemory] = {device: self}

    def on(self, device: int) -> Memory:
        """Return the source of bytes of another CUDA device."""
        if device not in self._others:
            other = self._others[device] = DeviceMemory(device)
            other._others = self._others
        return self._others[device]

    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = torch.cuda.memory_stats_as_nested_dict(self._device)
        return stats

    def level_bytes(self) -> int:
        """Return the bytes allocated to tensors."""
        return int(self._stats()["allocated_bytes"]["all"]["current"])

    def at_mark(self) -> tuple[int, ...]:
        """Return what is allocated, the most that was since somebody last reset it, and what is reserved."""
        stats = self._stats()
        allocated = stats["allocated_bytes"]["all"]
        return int(allocated["current"]), int(allocated["peak"]), int(stats["reserved_bytes"]["all"]["current"])

    def readings(self) -> dict[str, int]:
        """Return what a step's end reports: allocated, its peak, reserved, pieces of it, and the resident set."""
        stats = self._stats()
        allocated = stats["allocated_bytes"]["all"]
        found = {
            "allocated_bytes": int(allocated["current"]),
            "reserved_bytes": int(stats["reserved_bytes"]["all"]["current"]),
            "peak_bytes": int(allocated["peak"]),
            "rss_bytes": self._host.level_bytes(),
        }
        # Other allocators than the native one (cudaMallocAsync) keep fewer statistics.
        pieces = stats.get("inactive_split_bytes", {}).get("all", {}).get("current")
        if pieces is not None:
            found["inactive_split_bytes"] = int(pieces)
        for name, key in (("alloc_retries", "num_alloc_retries"), ("ooms", "num_ooms")):
            if stats.get(key):
                found[name] = int(stats[key])
        return found

    def capacity_bytes(self) -> int | None:
        """Return the device's memory."""
        return int(torch.cuda.get_device_properties(self._device).total_memory)

    def close(self) -> None:
        """Close what the host's readings hold open."""
        for memory in self._others.values():
            memory._host.close()


def choose_memory(device: torch.device) -> Memory:
    """Return the source of bytes for work on this device."""
    if device.type == "cuda":
        return DeviceMemory(device.index if device.index is not None else torch.cuda.current_device())
    return HostMemory()
