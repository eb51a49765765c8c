"""Measure the cost of an event, the events per step, and the growth of their pool."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

from torch import Tensor, nn

from autoprof.devices import DeviceClock, EventSource, Place
from autoprof.testing import open_session

from ..engine import OPTIONS, deliver

READS: Final = 200
REPETITIONS: Final = 20
BEHIND_NS: Final = 20_000_000
"""The kernel before queued pairs: longer than the host takes to record them."""


class Counting(EventSource):
    """An event source that counts its calls."""

    def __init__(self, source: EventSource) -> None:
        self.device_type = source.device_type
        self.made = self.recorded = self.queried = self.resolved = self.waited = 0
        self._source = source

    def here(self, device: int | None = None) -> Place | None:
        """Return where the source is."""
        return self._source.here(device)

    def index_of(self, tensor: Tensor) -> int | None:
        """Return the device of a tensor."""
        return self._source.index_of(tensor)

    @property
    def is_here(self) -> Callable[[Tensor], bool]:
        """Return the source's test of a tensor."""
        return self._source.is_here

    def new(self) -> Any:
        """Make an event."""
        self.made += 1
        return self._source.new()

    def record(self, event: Any, place: Place) -> None:
        """Record an event."""
        self.recorded += 1
        self._source.record(event, place)

    def query(self, event: Any) -> bool:
        """Ask for an event."""
        self.queried += 1
        return self._source.query(event)

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Resolve an event."""
        self.resolved += 1
        return self._source.elapsed_ns(start, end)

    def synchronize(self, event: Any) -> None:
        """Wait for an event."""
        self.waited += 1
        self._source.synchronize(event)


def per_step(
    source: EventSource, model: nn.Module, step: Callable[[], object], config: dict[str, Any], steps: int = 1000
) -> dict[str, Any]:
    """Return the events, queries and waits of a step, and how many events exist after 1 %, 10 % and all steps."""
    counting = Counting(source)
    made = {}
    session = open_session(model, {**config, **OPTIONS}, clock=DeviceClock(counting))
    try:
        for number in range(1, steps + 1):
            step()
            session.step()
            if number in (max(1, steps // 100), steps // 10, steps):
                made[str(number)] = counting.made
        deliver(session)
        counts = {name: getattr(counting, name) for name in ("recorded", "queried", "resolved", "waited")}
        late = session.summary().skipped
    finally:
        session.close()
    return {name: count / steps for name, count in counts.items()} | {"made": made, "skipped": dict(late)}


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
