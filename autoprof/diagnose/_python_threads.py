"""How long the training thread and the other Python threads of the process compute."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread, get_ident
from time import perf_counter_ns

from ._bounds import MIN_SHARE


@dataclass(frozen=True, slots=True)
class PythonThread:
    """A thread, whose name mostly has its function, and the processors that it keeps busy."""

    name: str
    cores: float


class ThreadMonitor:
    """Look at the Python threads, on the training thread, which holds the GIL meanwhile. Linux only.

    No call here releases the GIL, so none waits.
    """

    def __init__(self) -> None:
        self._first_ns = self._last_ns = 0
        self._cpu_ns: dict[tuple[int | None, str], tuple[int, int]] = {}
        """The CPU time of each thread at its first and last look, by its native id and name: ids are given again."""
        self._training = 0
        """The native id of the training thread."""

    def look(self) -> None:
        """Read the CPU time of each thread."""
        # ``threading.enumerate`` takes a lock, which may wait.
        threads: Mapping[int, Thread] = getattr(threading, "_active", {})
        if len(threads) < 2:
            return
        self._last_ns = perf_counter_ns()
        self._first_ns = self._first_ns or self._last_ns
        for ident, thread in list(threads.items()):
            if thread.name.startswith("autoprof"):
                continue
            if ident == get_ident():
                self._training = thread.native_id or 0
            key, cpu_ns = (thread.native_id, thread.name), _cpu_ns(thread.native_id)
            if cpu_ns is not None and (key in self._cpu_ns or len(self._cpu_ns) < 16):
                self._cpu_ns[key] = self._cpu_ns.get(key, (cpu_ns, 0))[0], cpu_ns

    def busy(self) -> tuple[PythonThread, ...]:
        """Return the threads that compute, the one with most CPU time first; progress bars take less."""
        found = [PythonThread(key[1], self._cores(key)) for key in self._cpu_ns if key[0] != self._training]
        return tuple(sorted((one for one in found if one.cores >= MIN_SHARE), key=lambda one: -one.cores))

    def training_cores(self) -> float | None:
        """Return the share of a processor that the training thread used; None where no other thread was seen."""
        return next((self._cores(key) for key in self._cpu_ns if key[0] == self._training), None)

    def _cores(self, key: tuple[int | None, str]) -> float:
        first_ns, last_ns = self._cpu_ns[key]
        return round(max(last_ns - first_ns, 0) / max(self._last_ns - self._first_ns, 1), 3)


def _cpu_ns(native_id: int | None) -> int | None:
    """Return the CPU time of a thread of this process; None where there is no such thread.

    The clock's number is that of Linux (``MAKE_THREAD_CPUCLOCK``); unlike a ``pthread_t``, it may be that of a thread
    that has ended.
    """
    if native_id is None or not sys.platform.startswith("linux"):
        return None
    try:
        return time.clock_gettime_ns((~native_id << 3) | 6)
    except OSError:
        return None
