"""Other Python threads of the process, and how long they compute."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread, get_ident
from time import perf_counter_ns
from typing import Final

MIN_CORES: Final = 0.05
"""Processors that a thread keeps busy before it is named; autoprof's own and progress bars stay below."""


@dataclass(frozen=True, slots=True)
class PythonThread:
    """A thread, whose name mostly has its function, and the processors that it keeps busy."""

    name: str
    cores: float


class ThreadMonitor:
    """Look at the other Python threads, on the training thread, which holds the GIL meanwhile. Linux only.

    No call here releases the GIL, so none waits.
    """

    def __init__(self) -> None:
        self._first_ns = self._last_ns = 0
        self._read_ns: dict[tuple[int, str], int] = {}
        """The CPU time of each thread at the last look, by its native id and name: ids are given again."""
        self._used_ns: Counter[tuple[int, str]] = Counter()

    def look(self) -> None:
        """Add the CPU time of each thread since the last look."""
        threads = _live_threads()
        if len(threads) < 2:
            return
        now_ns = perf_counter_ns()
        self._last_ns, self._first_ns = now_ns, self._first_ns or now_ns
        for ident, thread in list(threads.items()):
            native = thread.native_id
            cpu_ns = None if native is None or ident == get_ident() else _cpu_ns(native)
            if native is None or cpu_ns is None or thread.name.startswith("autoprof"):
                continue
            key = native, thread.name
            if key not in self._read_ns:
                if len(self._read_ns) < 16:
                    self._read_ns[key] = cpu_ns
                continue
            self._used_ns[key] += cpu_ns - self._read_ns[key]
            self._read_ns[key] = cpu_ns

    def busy(self) -> tuple[PythonThread, ...]:
        """Return the threads that compute, the one with most CPU time first."""
        wall_ns = max(self._last_ns - self._first_ns, 1)
        return tuple(
            PythonThread(key[1], round(used_ns / wall_ns, 3))
            for key, used_ns in self._used_ns.most_common()
            if used_ns >= MIN_CORES * wall_ns
        )


def _live_threads() -> Mapping[int, Thread]:
    """Return the live threads by ident. ``threading.enumerate`` takes a lock, which may wait."""
    known: Mapping[int, Thread] = getattr(threading, "_active", {})
    return known


def _cpu_ns(native_id: int) -> int | None:
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
