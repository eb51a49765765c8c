"""Telemetry of the device and the host over a run: new readings as scalars of a step, statistics in the summary.

The host is read at a step's end, at most once a second: a few small files, some 50 µs. The device is read by a thread,
because a call into the driver can take milliseconds; a step's end takes the newest reading of that thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import torch

from ...base.summary import MetricStats
from ...devices import Device, HostReader, Monitor


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
        self._stats: dict[str, MetricStats] = {}
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
        if not warmup:
            self._add(new)
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
        values = self._host.read()
        started, self._started = self._started, not warmup
        if not started:
            return {}
        if not warmup:
            self._add(values)
        return values

    def finish(self) -> None:
        """Read the host once more for a run that was too short for a reading."""
        if self._host is not None and self._started and "host_rss_bytes" not in self._stats:
            self._read_host(warmup=False)

    def _add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            old = self._stats.get(name, MetricStats(0.0, value, value, value, 0))
            count = old.readings + 1
            mean = old.mean + (value - old.mean) / count
            self._stats[name] = MetricStats(mean, min(old.low, value), max(old.high, value), value, count)

    def statistics(self) -> dict[str, MetricStats]:
        """Return the statistics without the warm-up."""
        return dict(self._stats)

    def problem(self) -> str | None:
        """Return why the device was not read any more; None if it was."""
        failed = None if self._monitor is None else self._monitor.problem
        return None if failed is None else f"telemetry of the GPU failed: {failed}"

    def close(self) -> None:
        """Stop reading. In a forked process there is no thread, and its resources belong to the parent."""
        if self._monitor is not None:
            self._monitor.close()
        if self._host is not None:
            self._host.close()


def open_telemetry(device: Device, place: torch.device) -> tuple[Telemetry, str | None]:
    """Start to read the host, and the device where it has telemetry; return the reason where it is missing."""
    host = HostReader()
    host.read()  # the CPU time counts from here
    reader, reason = device.telemetry(place)
    monitor = None if reader is None else Monitor(reader)
    return Telemetry(host, monitor), None if reason is None else f"no telemetry of the GPU: {reason}"
