"""The reader of the host's telemetry: memory and CPU time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import process as multiprocessing_process
from pathlib import Path
from threading import get_ident
from typing import Final

from ._memory import HostMemory

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000_000


class HostReader:
    """Read the host by the names of its metrics; rates are since the last reading. One reading is a few small files."""

    def __init__(
        self,
        stat: Path = Path("/proc/stat"),
        now_ns: Callable[[], int] = time.perf_counter_ns,
        cpu_ns: Callable[[], int] = time.process_time_ns,
        schedule: Path = Path("/proc/thread-self/schedstat"),
    ) -> None:
        self._stat = stat
        self._schedule = schedule
        self._now_ns = now_ns
        self._cpu_ns = cpu_ns
        self._memory = HostMemory()
        self._last: tuple[int, int] | None = None
        self._last_schedule: tuple[int, int] | None = None
        self._last_children: dict[int, int] = {}
        self._last_machine: tuple[int, int] | None = None

    def read(self) -> dict[str, float]:
        """Return a reading; a value that is not measurable here, or has no earlier one to compare with, is absent.

        ``host_cpu_cores`` are CPU seconds per second of this process and its threads, ``host_child_cores`` those of the
        processes that ``multiprocessing`` started. ``host_cpu_busy`` is the share of the machine's CPU time that was
        not idle. The calling thread was ``host_cpu_waiting`` of the time without a processor although it could have
        run.
        """
        now, cpu, machine = self._now_ns(), self._cpu_ns(), self._machine()
        schedule, children_ns = self._scheduled(), _children_ns()
        found = {"host_rss_bytes": float(self._memory.level_bytes())}
        if self._last is not None and now > self._last[0]:
            elapsed = now - self._last[0]
            found["host_cpu_cores"] = (cpu - self._last[1]) / elapsed
            used = sum(max(ns - self._last_children.get(pid, ns), 0) for pid, ns in children_ns.items())
            if used:
                found["host_child_cores"] = used / elapsed
            if schedule is not None and self._last_schedule is not None and schedule[0] == self._last_schedule[0]:
                waited = schedule[1] - self._last_schedule[1]
                found["host_cpu_waiting"] = min(max(waited, 0) / elapsed, 1.0)
        if machine is not None and self._last_machine is not None and machine[0] > self._last_machine[0]:
            whole = machine[0] - self._last_machine[0]
            idle = min(max(machine[1] - self._last_machine[1], 0), whole)  # iowait may run backwards
            found["host_cpu_busy"] = 1 - idle / whole
        self._last, self._last_machine = (now, cpu), machine
        self._last_schedule, self._last_children = schedule, children_ns
        return found

    def close(self) -> None:
        """Close the open file."""
        self._memory.close()

    def _machine(self) -> tuple[int, int] | None:
        try:
            with open(self._stat, encoding="ascii") as file:
                ticks = [int(word) for word in file.readline().split()[1:9]]
            # Fields idle and iowait in the first line of /proc/stat (proc_stat(5)); guest time is already in user time.
            return sum(ticks), sum(ticks[place] for place in (3, 4))
        except (OSError, ValueError, IndexError):
            return None

    def _scheduled(self) -> tuple[int, int] | None:
        """Return the calling thread, and the nanoseconds for which it has waited for a processor."""
        try:
            with open(self._schedule, encoding="ascii") as file:
                return get_ident(), int(file.read().split()[1])
        except (OSError, ValueError, IndexError):
            return None


def _children_ns() -> dict[int, int]:
    """Return the CPU time of each live child of ``multiprocessing``, without asking them (that would reap them)."""
    # Index of utime after the command's name in /proc/PID/stat (proc_pid_stat(5)); stime follows.
    user_time = 11
    found = {}
    for child in tuple(getattr(multiprocessing_process, "_children", ())):
        with suppress(OSError, ValueError, IndexError, AttributeError):
            with open(f"/proc/{child.pid}/stat", encoding="ascii", errors="replace") as file:
                times = file.read().rpartition(")")[2].split()[user_time : user_time + 2]
            found[child.pid] = sum(map(int, times)) * _TICK_NS
    return found


def available_cores() -> int:
    """Return the number of CPU cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
