"""Telemetry of the device and the host over a run: new readings as scalars of a step, statistics in the summary.

The host is read at a step's end, at most once a second: a few small files, some 50 µs. The device is read by a thread,
because a call into the driver can take milliseconds; a step's end takes the newest reading of that thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import torch

from ..devices import FAILURES, THROTTLED_BY, Device, HostReader, Monitor
from ..summary import MetricStats


@dataclass(slots=True)
class _Running:
    """Running statistics of one metric."""

    total: float
    low: float
    high: float
    last: float
    count: int = 1

    def add(self, value: float) -> None:
        self.total += value
        self.low = min(self.low, value)
        self.high = max(self.high, value)
        self.last = value
        self.count += 1


class Telemetry:
    """Statistics of all readings, and the newest values as scalars of the step in which they came."""

    def __init__(
        self, host: HostReader | None = None, monitor: Monitor | None = None, now_s: Callable[[], float] = monotonic
    ) -> None:
        self._host = host
        self._monitor = monitor
        self._now_s = now_s
        self._due_s = 0.0
        self._seen: Mapping[str, float] | None = None
        self._started = False
        self._running: dict[str, _Running] = {}
        self._host_failures = 0
        self._problem: str | None = None
        if monitor is not None:
            monitor.start()

    def complete(self, scalars: Mapping[str, Any], *, warmup: bool) -> Mapping[str, Any]:
        """Return a step's scalars with the readings since the last step; the user's own scalars take precedence."""
        new: dict[str, float] = {}
        if self._monitor is not None:
            reading = self._monitor.latest
            if reading is not None and reading is not self._seen:
                self._seen = reading
                new.update(reading)
        self._add(new, warmup=warmup)
        if self._host is not None and (warmup or not self._started or self._now_s() >= self._due_s):
            new.update(self._read_host(warmup=warmup))
        return scalars if not new else {**scalars, **{name: new[name] for name in new if name not in scalars}}

    def _read_host(self, *, warmup: bool) -> dict[str, float]:
        """Read the host; the first reading after the warm-up is only the reference of the next one."""
        assert self._host is not None
        now_s = self._now_s()
        if warmup and now_s < self._due_s:
            return {}
        self._due_s = now_s + 1.0
        try:
            values = self._host.read()
        except (OSError, ValueError):
            self._host_failures += 1
            if self._host_failures >= FAILURES:
                self._close_host()
            return {}
        self._host_failures = 0
        started, self._started = self._started, not warmup
        if not started:
            return {}
        self._add(values, warmup=warmup)
        return values

    def finish(self) -> None:
        """Read the host once more for a run that was too short for a reading."""
        if self._host is not None and self._started and "host_rss_bytes" not in self._running:
            self._read_host(warmup=False)

    def _add(self, values: dict[str, float], *, warmup: bool) -> None:
        for name, value in values.items() if not warmup else ():
            running = self._running.get(name)
            if running is None:
                self._running[name] = _Running(value, value, value, value)
            else:
                running.add(value)

    def statistics(self) -> dict[str, MetricStats]:
        """Return the statistics without the warm-up; a cause of throttling is a share of all readings."""
        throttled = self._running.get("gpu_throttled")
        readings = 0 if throttled is None else throttled.count
        found = {}
        for name, one in self._running.items():
            low, count = one.low, one.count
            if name.startswith(THROTTLED_BY):
                low, count = (low if count == readings else 0.0), readings
            found[name] = MetricStats(one.total / count, low, one.high, one.last, count)
        return found

    def problem(self) -> str | None:
        """Return why the device was not read any more before ``close``; None if it was."""
        if self._monitor is not None:
            failed = self._monitor.problem
            self._problem = None if failed is None else f"telemetry of the GPU failed: {failed}"
        return self._problem

    def close(self) -> None:
        """Stop reading. In a forked process there is no thread, and its resources belong to the parent."""
        self.problem()
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.close()
        self._close_host()

    def _close_host(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.close()


def open_telemetry(device: Device, place: torch.device) -> tuple[Telemetry, str | None]:
    """Start to read the host, and the device where it has telemetry; return the reason where it is missing."""
    host = HostReader()
    host.read()  # the CPU time counts from here
    reader, reason = device.telemetry(place)
    monitor = None if reader is None else Monitor(reader)
    return Telemetry(host, monitor), None if reason is None else f"no telemetry of the GPU: {reason}"
