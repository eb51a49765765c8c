"""Read devices and host now and then, beside the training: a step finds the last readings ready and waits for nothing.

A thread of its own, because a call into the driver can take milliseconds; ctypes lets go of the GIL for as long as it
lasts, so the training goes on. Between the calls lies a little Python, once a second: NVML's own figures are no newer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

PERIOD_S: Final = 1.0
"""The time between two readings."""
FAILURES: Final = 3
"""Failures in a row after which a source is not asked again."""


class Source(Protocol):
    """What can be read: a ``DeviceReader``, a ``HostReader``."""

    def read(self) -> Any:
        """Return a reading."""

    def close(self) -> None:
        """Give back what is held open."""


class Monitor:
    """Read the sources every ``period_s``; ``latest`` has the last reading of each, by the name it was given.

    The thread starts with ``start`` and is a daemon. In a forked process nothing is read: threads do not survive that.
    """

    def __init__(self, sources: Mapping[str, Source], period_s: float = PERIOD_S) -> None:
        self._sources = dict(sources)
        self._period_s = period_s
        self._failed = dict.fromkeys(self._sources, 0)
        self._latest: Mapping[str, Any] = MappingProxyType({})
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.problems: dict[str, str] = {}
        """What a source failed with, the last time."""
        self.readings = 0
        """Rounds of reading so far."""
        self.cpu_ns = 0
        """Processor time that the rounds took on their thread."""

    @property
    def latest(self) -> Mapping[str, Any]:
        """The last reading of each source that has one. Costs a look at an attribute."""
        return self._latest

    def start(self) -> None:
        """Begin to read, at once and then every period."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._loop, name="autoprof-monitor", daemon=True)
            self._thread.start()

    def read_now(self, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        """Read every source once, on the calling thread. A source that raises loses only its own reading."""
        started = cpu_ns()
        found: dict[str, Any] = {}
        for name, source in self._sources.items():
            if self._failed[name] >= FAILURES:
                continue
            try:
                found[name] = source.read()
                self._failed[name] = 0
            except Exception as error:
                self._failed[name] += 1
                self.problems[name] = f"{type(error).__name__}: {error}"
        self._latest = MappingProxyType(found)
        self.readings += 1
        self.cpu_ns += cpu_ns() - started

    def close(self, patience_s: float = 2.0) -> None:
        """Stop, and close the sources. Waits for a reading under way, but not longer than ``patience_s``."""
        if self._process != os.getpid():
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience_s)
            if self._thread.is_alive():
                return  # stuck in the driver: closing under it could crash
            self._thread = None
        sources, self._sources = self._sources, {}
        for name, source in sources.items():
            try:
                source.close()
            except Exception as error:
                self.problems[name] = f"{type(error).__name__}: {error}"

    def _loop(self) -> None:
        while not self._stop.is_set():
            self.read_now()
            self._stop.wait(self._period_s)
