"""Read telemetry once a second on a thread: a step finds the last reading ready and waits for nothing.

A thread, because a call into the driver can take milliseconds; ctypes releases the GIL meanwhile, so training goes on.
Between the calls runs a little Python, once a second: NVML's own figures are no newer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Protocol


class TelemetryReader(Protocol):
    """A reader of a device's telemetry."""

    def read(self) -> Mapping[str, float]:
        """Return a new reading by the names that the metrics have in reports (``gpu_utilization``)."""

    def close(self) -> None:
        """Release the reader's resources."""


class Monitor:
    """Call a reader every ``period_s``; ``latest`` is its last reading, None after a failure.

    The thread starts with ``start`` and is a daemon. In a forked process nothing is read: a fork has no threads.
    """

    def __init__(self, reader: TelemetryReader, period_s: float = 1.0) -> None:
        self._reader: TelemetryReader | None = reader
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.latest: Mapping[str, float] | None = None
        self.problem: str | None = None
        """The failure after which the reader is not called any more."""

    def start(self) -> None:
        """Start reading, at once and then every period."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._loop, name="autoprof-monitor", daemon=True)
            self._thread.start()

    def read_now(self) -> None:
        """Call the reader once, on the calling thread."""
        if self._reader is None or self.problem is not None:
            return
        try:
            self.latest = self._reader.read()
        except Exception as error:  # the reader itself asks the driver again
            self.latest = None
            self.problem = f"{type(error).__name__}: {error}"

    def close(self, patience_s: float = 2.0) -> None:
        """Stop, and close the reader. Waits for a running call, at most ``patience_s``."""
        if self._process != os.getpid():
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience_s)
            if self._thread.is_alive():
                return  # the call hangs in the driver: closing the reader now could crash
        reader, self._reader = self._reader, None
        if reader is not None:
            try:
                reader.close()
            except Exception as error:
                self.problem = f"{type(error).__name__}: {error}"

    def _loop(self) -> None:
        while not self._stop.is_set():
            self.read_now()
            self._stop.wait(self._period_s)
