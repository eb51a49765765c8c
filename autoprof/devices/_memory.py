"""Sources of memory readings: the process's resident set, and the counters of a device's allocator.

Reading never resets a counter: the user's own peaks stay valid.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

if sys.platform != "win32":
    import resource

MIN_PAUSE_NS: Final = 20_000_000
"""The least time between two readings at step ends: a short run needs enough of them to show a leak."""
MAX_PAUSE_NS: Final = 500_000_000
"""The longest time between two readings at the ends of short steps: a plot of memory shows half seconds."""
PAUSE_PART: Final = 20
"""Between these two, a pause is the time since the first reading divided by this. A reading costs up to 30 µs."""


class Memory(ABC):
    """A source of bytes: ``at_mark`` at a mark, ``readings`` at a step's end."""

    now_ns: Callable[[], int] = staticmethod(perf_counter_ns)
    """The clock by which readings at step ends are due."""
    due_ns = 0
    """The time from which on the next reading at a step's end is due: ``at_step_end`` returns nothing before."""
    _began_ns = 0

    @abstractmethod
    def level_bytes(self) -> int:
        """Return the bytes in use now."""

    def at_mark(self) -> tuple[int, ...]:
        """Return the level; of a caching allocator also its running peak."""
        return (self.level_bytes(),)

    @abstractmethod
    def readings(self) -> dict[str, int]:
        """Return the readings of a step's end by name: bytes, and counts of events.

        ``alloc_retries``: the allocator freed its cache to get memory; ``ooms``: it did so and still found none.
        """

    def failures(self) -> dict[str, int]:
        """Return the counts among the readings, which are of all steps so far."""
        return {name: count for name, count in self.readings().items() if name in ("alloc_retries", "ooms")}

    def on(self, device: int) -> Memory:
        """Return the source for another device of the same type; ``close`` of this source closes it too."""
        return self

    def at_step_end(self) -> dict[str, int]:
        """Return the readings; nothing where the last ones were read shortly before."""
        now = self.now_ns()
        if now < self.due_ns:
            return {}
        self._began_ns = self._began_ns or now
        self.due_ns = now + min(max((now - self._began_ns) // PAUSE_PART, MIN_PAUSE_NS), MAX_PAUSE_NS)
        return self.readings()

    def capacity_bytes(self) -> int | None:
        """Return the total bytes of the device or machine; None where they are unknown."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release the resources that the source holds."""


class HostMemory(Memory):
    """Read the resident set of this process. On Linux one ``pread`` of an open file, about 1.5 µs."""

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._statm = -1

    def level_bytes(self) -> int:
        """Return the resident set size, or its peak where the system has no current size."""
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
        """Return ``rss_bytes`` and ``rss_peak_bytes``."""
        level = self.level_bytes()
        return {"rss_bytes": level, "rss_peak_bytes": max(level, self.peak_bytes())}  # the kernel's two counts differ

    def capacity_bytes(self) -> int | None:
        """Return the machine's memory, or the container's limit."""
        try:
            installed = os.sysconf("SC_PHYS_PAGES") * self._page
        except (AttributeError, OSError, ValueError):
            return None
        try:
            with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
                return min(installed, int(file.read()))
        except (OSError, ValueError):  # no such file, or "max"
            return installed

    def close(self) -> None:
        """Close the file; readings after it return the peak."""
        if self._statm >= 0:
            statm, self._statm = self._statm, -1
            os.close(statm)


class AllocatorMemory(Memory):
    """Read the counters of torch's caching allocator for one device: tens of µs, as torch builds the whole dictionary.

    ``stats`` and ``capacity`` take the device's index. The peak is the allocator's own, since the user last reset it.
    """

    def __init__(self, device: int, stats: Callable[[int], dict[str, Any]], capacity: Callable[[int], int]) -> None:
        self._device = device
        self._stats = stats
        self._capacity = capacity
        self._host = HostMemory()
        self._others: dict[int, AllocatorMemory] = {device: self}

    def on(self, device: int) -> Memory:
        if device not in self._others:
            other = self._others[device] = AllocatorMemory(device, self._stats, self._capacity)
            other._others = self._others
        return self._others[device]

    def level_bytes(self) -> int:
        return int(self._stats(self._device)["allocated_bytes"]["all"]["current"])

    def at_mark(self) -> tuple[int, ...]:
        """Return the allocated bytes, and their peak since it was last reset."""
        allocated = self._stats(self._device)["allocated_bytes"]["all"]
        return int(allocated["current"]), int(allocated["peak"])

    def readings(self) -> dict[str, int]:
        """Return allocated, peak and reserved bytes, the resident set, and counts of retries and failures."""
        stats = self._stats(self._device)
        allocated = stats["allocated_bytes"]["all"]
        found = {
            "allocated_bytes": int(allocated["current"]),
            "reserved_bytes": int(stats["reserved_bytes"]["all"]["current"]),
            "peak_bytes": int(allocated["peak"]),
            "rss_bytes": self._host.level_bytes(),
        }
        for name, key in (("alloc_retries", "num_alloc_retries"), ("ooms", "num_ooms")):
            if stats.get(key):
                found[name] = int(stats[key])
        return found

    def capacity_bytes(self) -> int | None:
        return self._capacity(self._device)

    def close(self) -> None:
        """Close the file of the host's readings."""
        for memory in self._others.values():
            memory._host.close()
