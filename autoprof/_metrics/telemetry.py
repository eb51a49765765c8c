"""Readings of the device and of the host over a run: the last ones with a step, what they came to in the summary.

The host is read at a step's end, at most once a second: a few small files, some 50 µs. The device is read by a thread,
because a call into the driver can take milliseconds; a step's end takes up what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

import torch

from .._resolve import RawStep
from ..devices import FAILURES, DeviceReading, HostReader, HostReading, Monitor, device_of
from ..summary import MetricStats

PERIOD_S: Final = 1.0
"""The least time between two readings of the host."""
DEVICE: Final = "device"
CAUSE: Final = "gpu_throttled_by_"
"""What the name of a cause begins with; only the readings that name it hold it."""


class Telemetry:
    """Statistics of what was read, and the newest values as scalars of the step in which they came."""

    def __init__(
        self, host: HostReader | None = None, monitor: Monitor | None = None, now_s: Callable[[], float] = monotonic
    ) -> None:
        self._host = host
        self._monitor = monitor
        self._now_s = now_s
        self._due_s = 0.0
        self._seen_ns = 0
        self._started = False
        self._sums: dict[str, list[float]] = {}
        self._host_failures = 0
        if monitor is not None:
            monitor.start()

    def closed(self, raw: RawStep) -> None:
        """Give a step's end what was read since the last one."""
        if self._monitor is not None:
            reading = self._monitor.latest.get(DEVICE)
            if reading is not None and reading.unix_ns != self._seen_ns:
                self._seen_ns = reading.unix_ns
                self._take(raw, _of_device(reading))
        if self._host is not None and (raw.warmup or not self._started or self._now_s() >= self._due_s):
            self._read_host(raw)

    def _read_host(self, raw: RawStep | None) -> None:
        """Read the host; the first reading after the warm-up is only what the next one is compared with."""
        assert self._host is not None
        now_s = self._now_s()
        if raw is not None and raw.warmup and now_s < self._due_s:
            return
        self._due_s = now_s + PERIOD_S
        try:
            values = _of_host(self._host.read())
        except (OSError, ValueError):
            self._host_failures += 1
            if self._host_failures >= FAILURES:
                self._close_host()
            return
        self._host_failures = 0
        if self._started:
            self._take(raw, values)
        self._started = raw is None or not raw.warmup

    def finish(self) -> None:
        """Read the host once more for a run that was too short to be read in."""
        if self._host is not None and self._started and "host_rss_bytes" not in self._sums:
            self._read_host(None)

    def _take(self, raw: RawStep | None, values: Iterator[tuple[str, float]]) -> None:
        for name, value in values:
            if raw is not None:
                raw.scalars.setdefault(name, value)
                if raw.warmup:
                    continue
            sums = self._sums.get(name)
            if sums is None:
                self._sums[name] = [value, value, value, value, 1]
            else:
                sums[0] += value
                sums[1] = min(sums[1], value)
                sums[2] = max(sums[2], value)
                sums[3] = value
                sums[4] += 1

    def metrics(self) -> dict[str, MetricStats]:
        """Return what the readings came to, warm-up apart; a cause of throttling as its share of all readings."""
        asked = self._sums.get("gpu_throttled", [0.0] * 5)[4]
        found = {}
        for name, (total, low, high, last, count) in self._sums.items():
            if name.startswith(CAUSE):
                low, count = (low if count == asked else 0.0), asked
            found[name] = MetricStats(total / count, low, high, last, int(count))
        return found

    def problem(self) -> str | None:
        """Return why the device is not read any more, if so."""
        failed = None if self._monitor is None else self._monitor.problems.get(DEVICE)
        return None if failed is None else f"readings of the GPU failed: {failed}"

    def close(self) -> None:
        """Stop reading. In a forked process the thread is not there, and what it held is the parent's."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.close()
        self._close_host()

    def _close_host(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.close()


def open_telemetry(place: torch.device) -> tuple[Telemetry, str | None]:
    """Start to read the host, and the device where it has telemetry; return the reason where it is missing."""
    host = HostReader()
    host.read()  # the CPU time counts from here
    reader, reason = device_of(place).telemetry(place)
    monitor = None if reader is None else Monitor({DEVICE: reader})
    return Telemetry(host, monitor), None if reason is None else f"no telemetry of the GPU: {reason}"


def _of_device(reading: DeviceReading) -> Iterator[tuple[str, float]]:
    for cause in reading.throttled_by or ():
        yield f"{CAUSE}{cause.replace(' ', '_')}", 1.0
    yield from _given(
        gpu_utilization=reading.utilization_fraction,
        gpu_memory_bytes=reading.memory_used_bytes,
        gpu_power_w=None if reading.power_mw is None else reading.power_mw / 1000,
        gpu_power_limit_w=None if reading.power_limit_mw is None else reading.power_limit_mw / 1000,
        gpu_sm_clock_mhz=reading.sm_clock_mhz,
        gpu_sm_clock_max_mhz=reading.sm_clock_max_mhz,
        gpu_memory_clock_mhz=reading.memory_clock_mhz,
        gpu_temperature_c=reading.temperature_c,
        gpu_throttled=None if reading.throttled_by is None else float(bool(reading.throttled_by)),
    )


def _of_host(reading: HostReading) -> Iterator[tuple[str, float]]:
    yield from _given(
        host_cpu_cores=reading.process_cores,
        host_cpu_busy=reading.machine_busy_fraction,
        host_rss_bytes=reading.rss_bytes,
    )


def _given(**values: float | None) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if value is not None:
            yield name, float(value)
