"""Measure the cost of an event, and how far its times scatter."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Final

from autoprof.devices import DeviceClock, EventSource

READS: Final = 200
REPETITIONS: Final = 20
BEHIND_NS: Final = 20_000_000
"""The kernel before queued pairs: longer than the host takes to record them."""


def costs(source: EventSource, clock: DeviceClock, wait: Callable[[], object]) -> dict[str, float]:
    """Return the nanoseconds of a record by hand, of a reading through the clock, and of resolving one reading."""
    place = source.here()
    assert place is not None
    events = [source.new() for _ in range(READS)]
    by_hand, read, resolve = [], [], []
    for _ in range(REPETITIONS):
        began = perf_counter_ns()
        for event in events:
            source.record(event, place)
        by_hand.append((perf_counter_ns() - began) / READS)
        began = perf_counter_ns()
        readings = [clock.read() for _ in range(READS)]
        read.append((perf_counter_ns() - began) / READS)
        wait()
        began = perf_counter_ns()
        clock.times(readings)
        resolve.append((perf_counter_ns() - began) / READS)
        clock.release(readings)
    return {"record_ns": median(by_hand), "read_ns": median(read), "resolve_ns": median(resolve)}


def scatter(source: EventSource, wait: Callable[[], object], sleep: Callable[[float], None]) -> dict[str, float]:
    """Return the nanoseconds that two events in a row are apart: median and 95th percentile.

    ``queued`` pairs are behind a kernel, as where the host runs ahead; for ``idle`` pairs the device has nothing to do.
    """
    place = source.here()
    assert place is not None
    found: dict[str, float] = {}
    for name, length_ns in (("queued", BEHIND_NS), ("idle", 0)):
        pairs = [(source.new(), source.new()) for _ in range(READS)]
        if length_ns:
            sleep(length_ns)
        for start, end in pairs:
            source.record(start, place)
            source.record(end, place)
            if not length_ns:
                wait()
        wait()
        apart = sorted(source.elapsed_ns(start, end) for start, end in pairs)
        found[f"{name}_p50_ns"] = median(apart)
        found[f"{name}_p95_ns"] = apart[round(0.95 * (READS - 1))]
        found[f"{name}_least_ns"] = min((ns for ns in apart if ns > 0), default=0)
    return found
