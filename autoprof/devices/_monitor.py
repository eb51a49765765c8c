"""Read telemetry once a second on a thread: a step finds the last readings ready and waits for nothing.

A thread, because a call into the driver can take milliseconds; ctypes releases the GIL meanwhile, so training goes on.
Between the calls runs a little Python, once a second: NVML's own figures are no newer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

FAILURES: Final = 3
"""Failures in a row after which a reader is not called again."""


class TelemetryReader(Protocol):
    """A reader of telemetry: of a device it returns a ``DeviceReading``, of the host a ``HostReading``."""

    def read(self) -> Any:
        """Return a reading."""

    def close(self) -> None:
        """Release the reader's resources."""


class Monitor:
    """Call the readers every ``period_s``; ``latest`` has the last reading of each by its name.

    The thread starts with ``start`` and is a daemon. In a forked process nothing is read: a fork has no threads.
    """

    def __init__(self, readers: Mapping[str, TelemetryReader], period_s: float = 1.0) -> None:
        self._readers = dict(readers)
        self._period_s = period_s
        self._failed = dict.fromkeys(self._readers, 0)
        self._latest: Mapping[str, Any] = MappingProxyType({})
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.problems: dict[str, str] = {}
        """The last failure of each reader."""
        self.readings = 0
        """Rounds of reading so far."""
        self.cpu_ns = 0
        """CPU time of the rounds on their thread."""

    @property
    def latest(self) -> Mapping[str, Any]:
        """The last reading of each reader that has one. Costs one attribute access."""
        return self._latest

    def start(self) -> None:
        """Start reading, at once and then every period."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._loop, name="autoprof-monitor", daemon=True)
            self._thread.start()

    def read_now(self, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        """Call every reader once, on the calling thread. A reader that raises loses only its own reading."""
        started = cpu_ns()
        found: dict[str, Any] = {}
        for name, reader in self._readers.items():
            if self._failed[name] >= FAILURES:
                continue
            try:
                found[name] = reader.read()
                self._failed[name] = 0
            except Exception as error:
                self._failed[name] += 1
                self.problems[name] = f"{type(error).__name__}: {error}"
        self._latest = MappingProxyType(found)
        self.readings += 1
        self.cpu_ns += cpu_ns() - started

    def close(self, patience_s: float = 2.0) -> None:
        """Stop, and close the readers. Waits for a running call, at most ``patience_s``."""
        if self._process != os.getpid():
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience_s)
            if self._thread.is_alive():
                return  # the call hangs in the driver: closing the reader now could crash
            self._thread = None
        readers, self._readers = self._readers, {}
        for name, reader in readers.items():
            try:
                reader.close()
            except Exception as error:
                self.problems[name] = f"{type(error).__name__}: {error}"

    def _loop(self) -> None:
        while not self._stop.is_set():
            self.read_now()
            self._stop.wait(self._period_s)
