"""Other Python threads of the process: how long they compute, in which lines, and whether they need the GIL for it.

Read at ends of recorded steps, on the training thread, which holds the GIL then: no call here releases it, so none
waits. A thread that computes only while the training thread does not hold the GIL runs Python; one that computes
meanwhile, too, has released it, as torch and numpy do in their operations.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Thread, get_ident
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

from ..probes._call_table import Site
from ..probes.stacks import sites_of
from ._stacks import MAX_LINES, StackTable, table_of

LOOK_EVERY_NS: Final = 10_000_000
"""The least time between two looks: each takes some 30 µs while a thread computes, else 1 µs a thread."""
MAX_LOOKS: Final = 500
"""Looks of a session: the threads are known then."""
MAX_THREADS: Final = 16
MIN_CORES: Final = 0.1
"""Processors that a thread keeps busy before its stack is looked at."""
MAX_FREE: Final = 0.25
"""The use of processors while the training thread holds the GIL, in parts of all use: above it, a thread needs none."""
OWN: Final = "autoprof"
"""The beginning of the names of autoprof's own threads."""


@dataclass(frozen=True, slots=True)
class PythonThread:
    """A thread: its CPU time, and its lines.

    While the training thread held the GIL for
    ``held_ns``, it ran for ``free_ns``.
    """

    name: str
    cpu_ns: int
    held_ns: int
    free_ns: int
    lines: StackTable


@dataclass(frozen=True, slots=True)
class ThreadStatistics:
    """All threads that compute, the one with most CPU time first."""

    looks: int
    wall_ns: int
    threads: tuple[PythonThread, ...]

    def cores(self, thread: PythonThread) -> float:
        """Return the processors that a thread keeps busy."""
        return thread.cpu_ns / max(self.wall_ns, 1)

    @property
    def holding(self) -> tuple[PythonThread, ...]:
        """The threads that compute and hold the GIL for it, those with most CPU time first."""
        return tuple(
            thread
            for thread in self.threads
            if self.cores(thread) >= MIN_CORES
            and thread.free_ns / max(thread.held_ns, 1) <= MAX_FREE * self.cores(thread)
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ThreadStatistics:
        """Read back the result of ``dataclasses.asdict``."""
        threads = (PythonThread(**{**one, "lines": StackTable.from_dict(one["lines"])}) for one in data["threads"])
        return cls(data["looks"], data["wall_ns"], tuple(threads))


class _Seen:
    """One thread, from look to look."""

    def __init__(self, name: str, ident: int, native: int) -> None:
        self.name = name
        self.ident = ident
        self.native = native
        self.last_ns = self.used_ns = 0
        """Its CPU time at the last look, and the part of it since the look before."""
        self.cpu_ns = self.held_ns = self.free_ns = 0
        self.lines: dict[Site, list[int]] = {}

    def add_stack(self, frame: FrameType | None) -> None:
        """Add the outermost line of the user: it tells the work of a thread; or the innermost one outside torch."""
        users, inner = sites_of(frame)
        site = users[-1] if users else inner
        if site is not None and (site in self.lines or len(self.lines) < MAX_LINES):
            sums = self.lines.setdefault(site, [0, 0])
            sums[0], sums[1] = sums[0] + 1, sums[1] + self.used_ns

    def statistics(self) -> PythonThread:
        return PythonThread(self.name, self.cpu_ns, self.held_ns, self.free_ns, table_of(self.lines))


class ThreadMonitor:
    """Look at the other Python threads at ends of recorded steps, on the training thread. Linux only.

    ``cpu_ns`` returns the CPU time of a thread by its native id, None where it has ended.
    """

    def __init__(
        self,
        cpu_ns: Callable[[int], int | None] | None = None,
        threads: Callable[[], Mapping[int, Thread]] | None = None,
        now_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._cpu_ns = cpu_ns or read_cpu_ns
        self._threads = threads or threads_of_process
        self._now_ns = now_ns
        self._seen: dict[int, _Seen] = {}
        self._last_ns = self._wall_ns = self._looks = 0

    def look(self) -> None:
        """Look at the threads, if that was long ago; the training thread must hold the GIL."""
        now_ns = self._now_ns()
        if now_ns - self._last_ns < LOOK_EVERY_NS or self._looks >= MAX_LOOKS:
            return
        threads = self._threads()
        if len(threads) < 2:
            return
        wall_ns = now_ns - self._last_ns if self._looks else 0
        self._last_ns = now_ns
        self._wall_ns += wall_ns
        self._looks += 1
        busy = self._read(threads, wall_ns)
        if busy:
            self._read_again(busy, now_ns)

    def _read(self, threads: Mapping[int, Thread], wall_ns: int) -> list[_Seen]:
        """Add the CPU time of each thread since the last look; return those that computed. The first look adds none."""
        busy = []
        for ident, thread in list(threads.items()):
            native = thread.native_id
            cpu_ns = None if native is None or ident == get_ident() else self._cpu_ns(native)
            if native is None or cpu_ns is None or thread.name.startswith(OWN):
                continue
            seen = self._seen.get(native)
            if seen is None or seen.name != thread.name:  # ids of ended threads are given again
                if len(self._seen) >= MAX_THREADS:
                    continue
                seen = self._seen[native] = _Seen(thread.name, ident, native)
            used_ns, seen.last_ns = cpu_ns - seen.last_ns, cpu_ns
            seen.used_ns = used_ns if wall_ns else 0
            seen.cpu_ns += seen.used_ns
            if seen.used_ns >= max(MIN_CORES * wall_ns, 1):
                busy.append(seen)
        return busy

    def _read_again(self, busy: list[_Seen], begun_ns: int) -> None:
        """Read where the threads are, and how long they have computed since ``begun_ns``, with the GIL held here."""
        frames = sys._current_frames()
        for seen in busy:
            seen.add_stack(frames.get(seen.ident))
        held_ns = self._now_ns() - begun_ns
        for seen in busy:
            cpu_ns = self._cpu_ns(seen.native)
            seen.held_ns += held_ns
            seen.free_ns += 0 if cpu_ns is None else max(cpu_ns - seen.last_ns, 0)

    def statistics(self) -> ThreadStatistics | None:
        """Return the threads that have computed, the longest first; None where there was no other thread."""
        if not self._wall_ns:
            return None
        busy = [seen.statistics() for seen in self._seen.values() if seen.cpu_ns >= MIN_CORES * self._wall_ns]
        return ThreadStatistics(self._looks, self._wall_ns, tuple(sorted(busy, key=lambda one: -one.cpu_ns)))


def threads_of_process() -> Mapping[int, Thread]:
    """Return the live threads by ident. ``threading.enumerate`` takes a lock, which may wait."""
    known: Mapping[int, Thread] = getattr(threading, "_active", {})
    return known


def read_cpu_ns(native_id: int) -> int | None:
    """Return the CPU time of a thread of this process; None where there is no such thread.

    The clock's number is that of Linux (``MAKE_THREAD_CPUCLOCK``); unlike a ``pthread_t``, it may be that of a thread
    that has ended.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        return time.clock_gettime_ns((~native_id << 3) | 6)
    except OSError:
        return None
