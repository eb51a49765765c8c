"""Telemetry readings: the values that a device's reader returns, and the reader of the host (memory, CPU time)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import process as multiprocessing_process
from pathlib import Path
from threading import get_ident
from typing import Final

from ._memory import HostMemory

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000_000


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One reading of a device. None: the device does not report the value.

    Of a slice (MIG), power, clocks and temperature are those of the whole device.
    """

    unix_ns: int
    utilization_fraction: float | None = None
    """Share of the last sampling period in which any kernel ran, on however little of the device (NVML: 1/6 to 1 s)."""
    memory_used_bytes: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttled_by: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class HostReading:
    """One reading of the host. None: not measurable here, or no earlier reading to compare with."""

    unix_ns: int
    rss_bytes: int
    process_cores: float | None
    """CPU seconds of this process and its threads per second since the last reading, without loader workers."""
    machine_busy_fraction: float | None
    """Share of the machine's CPU time since the last reading that was not idle."""
    child_cores: float | None = None
    """CPU seconds per second of the processes that ``multiprocessing`` started, such as loader workers."""
    waiting_fraction: float | None = None
    """Share of the time since the last reading in which the calling thread could have run, but had no processor."""
    blocked_fraction: float | None = None
    """Share of that time in which it waited for something else: a lock, a file, a sleep's end."""


class HostReader:
    """Read the host; rates are since the last reading. One reading is a few small files."""

    def __init__(
        self,
        stat: Path = Path("/proc/stat"),
        unix_ns: Callable[[], int] = time.time_ns,
        now_ns: Callable[[], int] = time.perf_counter_ns,
        cpu_ns: Callable[[], int] = time.process_time_ns,
        schedule: Path = Path("/proc/thread-self/schedstat"),
    ) -> None:
        self._stat = stat
        self._schedule = schedule
        self._unix_ns = unix_ns
        self._now_ns = now_ns
        self._cpu_ns = cpu_ns
        self._memory = HostMemory()
        self._last: tuple[int, int] | None = None
        self._last_schedule: tuple[int, int, int] | None = None
        self._last_children: dict[int, int] = {}
        self._last_machine: tuple[int, int] | None = None

    def read(self) -> HostReading:
        """Return a reading. A missing file leaves None and raises nothing."""
        now, cpu, machine = self._now_ns(), self._cpu_ns(), self._machine()
        cores = busy = waiting = blocked = children = None
        schedule, children_ns = self._scheduled(), _children_ns()
        if self._last is not None and now > self._last[0]:
            elapsed = now - self._last[0]
            cores = (cpu - self._last[1]) / elapsed
            used = sum(max(ns - self._last_children.get(pid, ns), 0) for pid, ns in children_ns.items())
            children = used / elapsed
            if schedule is not None and self._last_schedule is not None and schedule[0] == self._last_schedule[0]:
                ran, waited = (schedule[at] - self._last_schedule[at] for at in (1, 2))
                waiting = min(max(waited, 0) / elapsed, 1.0)
                blocked = min(max(elapsed - ran - waited, 0) / elapsed, 1.0)
        if machine is not None and self._last_machine is not None and machine[0] > self._last_machine[0]:
            whole = machine[0] - self._last_machine[0]
            busy = 1 - min(max(machine[1] - self._last_machine[1], 0), whole) / whole  # iowait may run backwards
        self._last, self._last_machine = (now, cpu), machine
        self._last_schedule, self._last_children = schedule, children_ns
        rss = self._memory.level_bytes()
        return HostReading(self._unix_ns(), rss, cores, busy, children, waiting, blocked)

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

    def _scheduled(self) -> tuple[int, int, int] | None:
        """Return the calling thread, its nanoseconds on a processor, and those of waiting for one."""
        try:
            with open(self._schedule, encoding="ascii") as file:
                ran, waited, *_ = file.read().split()
                return get_ident(), int(ran), int(waited)
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
