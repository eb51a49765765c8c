"""How long the training thread and the other Python threads of the process compute, and at which lines."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread, get_ident
from time import perf_counter_ns
from typing import Any, Final

from ..probes import Site
from ..probes.stacks import sites_of
from ._bounds import MIN_SHARE
from ._calls import CallSite, call_site

MAX_KEPT: Final = 16
"""Threads that are remembered, and lines of each."""


@dataclass(frozen=True, slots=True)
class PythonThread:
    """A thread, and the processors that it keeps busy."""

    name: str
    cores: float
    line: CallSite | None = None
    """The innermost line of the program in which the thread was seen most often; None where it was seen in none."""

    @property
    def described(self) -> str:
        """The name and the line: ``Thread-1 (train.py:21 run `while not self.done:`)``."""
        if self.line is None:
            return self.name
        source = f" `{self.line.source}`" if self.line.source else ""
        return f"{self.name} ({self.line.location} {self.line.function}{source})"

    def evidence(self) -> dict[str, Any]:
        """Return the line as the evidence of a finding."""
        return {} if self.line is None else {"sites": [{"where": self.line.location, "function": self.line.function}]}


class ThreadMonitor:
    """Look at the Python threads, on the training thread, which holds the GIL meanwhile. Linux only.

    No call here releases the GIL, so none waits.
    """

    def __init__(self) -> None:
        self._first_ns = self._last_ns = 0
        self._cpu_ns: dict[tuple[int | None, str], tuple[int, int]] = {}
        """The CPU time of each thread at its first and last look, by its native id and name: ids are given again."""
        self._lines: defaultdict[tuple[int | None, str], Counter[Site]] = defaultdict(Counter)
        """How often each thread that had computed since the last look was seen in each line."""
        self._training = 0
        """The native id of the training thread."""

    def look(self) -> None:
        """Read the CPU time of each thread, and the line that it runs if it has computed since the last look."""
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
            if cpu_ns is not None and (key in self._cpu_ns or len(self._cpu_ns) < MAX_KEPT):
                first_ns, last_ns = self._cpu_ns.get(key, (cpu_ns, cpu_ns))
                self._cpu_ns[key] = first_ns, cpu_ns
                if cpu_ns > last_ns and ident != get_ident():
                    self._count_line(key, ident)

    def busy(self) -> tuple[PythonThread, ...]:
        """Return the threads that compute, the one with most CPU time first; progress bars take less."""
        cores = {key: self._cores(key) for key in self._cpu_ns if key[0] != self._training}
        busy = sorted((key for key in cores if cores[key] >= MIN_SHARE), key=lambda key: -cores[key])
        return tuple(PythonThread(key[1], cores[key], self._line(key)) for key in busy)

    def training_cores(self) -> float | None:
        """Return the share of a processor that the training thread used; None where no other thread was seen."""
        return next((self._cores(key) for key in self._cpu_ns if key[0] == self._training), None)

    def _count_line(self, key: tuple[int | None, str], ident: int) -> None:
        # No name for the frames: one of them is of this function, and would keep them all until garbage is collected.
        users, _ = sites_of(sys._current_frames().get(ident))
        lines = self._lines[key]
        if users and (users[0] in lines or len(lines) < MAX_KEPT):
            lines[users[0]] += 1

    def _line(self, key: tuple[int | None, str]) -> CallSite | None:
        return next((call_site(site, count, 0) for site, count in self._lines[key].most_common(1)), None)

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
