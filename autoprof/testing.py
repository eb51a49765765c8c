"""Test doubles: a clock that the test advances, a device that lags behind it, a sink that keeps frames.

clock = FakeClock()
sink = ListSink()
with open_session(model, config, clock=clock, sinks=[sink]) as session:
    …
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from .base.frame import NOT_MEASURED, Layout, Span, StepFrame
from .base.summary import Summary
from .devices import Clock, ClockLimits, DeviceClock, EventSource, HostClock, Memory, Place
from .session.builder import open_session as _open_session
from .session.session import Session

if TYPE_CHECKING:
    from .sinks import Config, Sink

__all__ = ["FakeClock", "FakeDevice", "ListSink", "make_frame", "open_session"]


class FakeClock(HostClock):
    """A host clock that the test advances. ``tick_ns`` passes at each reading, so that no two are equal.

    ``limit_ns`` is its resolution; 0 means exact.
    """

    def __init__(self, start_ns: int = 0, tick_ns: int = 0, limit_ns: int = 0) -> None:
        self.now_ns = start_ns
        self.tick_ns = tick_ns
        self.limits = ClockLimits(resolution_ns=limit_ns)

    def advance(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns

    def read(self) -> int:
        """Return the time, then let ``tick_ns`` pass."""
        now = self.now_ns
        self.now_ns += self.tick_ns
        return now

    def peek(self) -> int:
        """Return the time."""
        return self.now_ns


class FakeDevice(EventSource):
    """An asynchronous device with streams (or several such), as an event source for ``DeviceClock``.

    ``work(ns)`` queues a kernel of that length on the current stream; it starts when the stream is free, not before
    now. As torch does, a thread keeps a current stream for each device: ``work(ns, device=1)`` is a kernel on tensors
    of another device than the current one. ``move`` puts a module's tensors on a device; all
    others lie on none. ``on`` and ``switch_to`` make another device and stream current in this thread; ``wait_for``
    has the current stream (or another device's) wait for another one, ``wait_here`` has the host wait. An event is
    passed ``lag_ns`` after its stream has reached it; ``lags`` has the lag of a stream that differs. ``queries`` and
    ``waits`` count calls that a test may forbid; ``capturing`` behaves as a stream under CUDA-graph capture. Events
    of two devices, and events that the device has not passed, cannot be compared.
    """

    device_type = "fake"

    def __init__(self, clock: FakeClock, lag_ns: int = 0, *, lags: Mapping[Place, int] | None = None) -> None:
        self.clock = clock
        self.lag_ns = lag_ns
        self.lags = dict(lags or {})
        self.capturing = False
        self.made = 0
        self.queries = 0
        self.waits = 0
        self._current = threading.local()
        self._index_of: MutableMapping[Tensor, int] = WeakIdKeyDictionary()
        self._free_at: dict[Place, int] = {}

    def device_clock(self) -> DeviceClock:
        """Return a clock that reads this device's events and the test's host clock."""
        clock = DeviceClock(self, now=self.clock.read)
        clock.limits, clock.peek = self.clock.limits, self.clock.peek
        return clock

    @property
    def place(self) -> Place:
        """The device and stream current in this thread."""
        return self.place_on(getattr(self._current, "device", 0))

    def place_on(self, device: int) -> Place:
        """The stream that this thread uses of a device."""
        return device, self._current_streams.get(device, 0)

    @property
    def _current_streams(self) -> dict[int, Hashable]:
        streams: dict[int, Hashable] = self._current.__dict__.setdefault("streams", {})
        return streams

    def move(self, moved: nn.Module | Tensor, device: int) -> None:
        """Put a tensor, or the parameters and buffers of a module, on a device."""
        for tensor in (moved,) if isinstance(moved, Tensor) else (*moved.parameters(), *moved.buffers()):
            self._index_of[tensor] = device

    def index_of(self, tensor: Tensor) -> int | None:
        return self._index_of[tensor] if tensor in self._index_of else None  # noqa: SIM401

    @property
    def is_here(self) -> Callable[[Tensor], bool]:
        return lambda tensor: self.index_of(tensor) is not None

    def work(self, ns: int, device: int | None = None) -> None:
        """Queue ``ns`` of work on the current stream (of the current device); the host does not wait."""
        place = self.place if device is None else self.place_on(device)
        self._free_at[place] = self._reached(place) + ns

    @contextmanager
    def on(self, device: int = 0, stream: Hashable = 0) -> Iterator[None]:
        """Make another device and stream current in this thread."""
        (before, _), there = self.place, self.place_on(device)
        self.switch_to(device, stream)
        try:
            yield
        finally:
            self.switch_to(*there)
            self._current.device = before

    def switch_to(self, device: int = 0, stream: Hashable = 0) -> None:
        """Make another device and stream current in this thread, for good."""
        self._current.device, self._current_streams[device] = device, stream

    def wait_for(self, device: int = 0, stream: Hashable = 0, *, on: int | None = None) -> None:
        """Have the current stream (of the device ``on``) wait for the work queued on another; the host does not."""
        place = self.place if on is None else self.place_on(on)
        self._free_at[place] = max(self._reached(place), self._reached((device, stream)))

    def wait_here(self) -> None:
        """Have the host wait for the current stream, as reading a loss does."""
        self.clock.now_ns = self._reached(self.place)

    def _reached(self, place: Place) -> int:
        return max(self.clock.now_ns, self._free_at.get(place, 0))

    def here(self, device: int | None = None) -> Place | None:
        if self.capturing:
            return None
        return self.place if device is None else self.place_on(device)

    def new(self) -> FakeEvent:
        self.made += 1
        return FakeEvent()

    def record(self, event: FakeEvent, place: Place) -> None:
        event.place, event.reached_ns = place, self._reached(place)

    def _passed_at(self, event: FakeEvent) -> int:
        assert event.place is not None, "an event that was never recorded"
        return event.reached_ns + self.lags.get(event.place, self.lag_ns)

    def query(self, event: FakeEvent) -> bool:
        self.queries += 1
        return self._passed_at(event) <= self.clock.now_ns

    def elapsed_ns(self, start: FakeEvent, end: FakeEvent) -> int:
        assert start.place is not None
        assert end.place is not None
        assert start.place[0] == end.place[0], "events of two devices"
        assert max(map(self._passed_at, (start, end))) <= self.clock.now_ns, "events that the device has not passed"
        return end.reached_ns - start.reached_ns

    def synchronize(self, event: FakeEvent) -> None:
        self.waits += 1
        self.clock.now_ns = max(self.clock.now_ns, self._passed_at(event))


class FakeEvent:
    """An event of a ``FakeDevice``: where it was last recorded, and when the stream reaches it."""

    __slots__ = ("place", "reached_ns")

    def __init__(self) -> None:
        self.place: Place | None = None
        self.reached_ns = 0


class ListSink:
    """Keep every frame in ``frames`` and the run's ``summary``."""

    def __init__(self) -> None:
        self.frames: list[StepFrame] = []
        self.summary: Summary | None = None

    def write(self, frame: StepFrame) -> None:
        self.frames.append(frame)

    def close(self, summary: Summary) -> None:
        self.summary = summary


def open_session(
    model: nn.Module,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
    *,
    clock: Clock,
    optimizer: Any = None,
    sinks: Iterable[Sink] = (),
    memory: Memory | None = None,
    processor_ns: Callable[[], int] | None = None,
) -> Session:
    """Open a session as ``autoprof.instrument`` does, with this clock, and with this ``memory`` if one is given.

    ``processor_ns`` is the clock of autoprof's own cost, in nanoseconds; without one it costs nothing.
    """
    return _open_session(
        model,
        config,
        optimizer=optimizer,
        sinks=sinks,
        clock=clock,
        memory=memory,
        processor_ns=processor_ns or (lambda: 0),
    )


COLUMNS: Final = (
    "device_start_ns", "device_ns", "host_bound_ns", "memory_start_bytes", "memory_end_bytes", "memory_peak_bytes",
)  # fmt: skip


def make_frame(spans: Sequence[Span], *, step: int = 1, duration_ns: int | None = None, **fields: Any) -> StepFrame:
    """Build a frame of spans, parents first; the step ends with the last span unless ``duration_ns`` is given."""
    layout = Layout(
        names=tuple(span.name for span in spans),
        fqns=tuple(span.fqn for span in spans),
        phases=tuple(span.phase for span in spans),
        parents=tuple(-1 if span.parent is None else span.parent for span in spans),
        calls=tuple(span.calls for span in spans),
        lanes=tuple(span.lane for span in spans),
    )
    end = max((span.start_ns + span.host_ns for span in spans), default=0)
    columns = {name: _column([getattr(span, name) for span in spans]) for name in COLUMNS}
    return StepFrame(
        step=step,
        start_unix_ns=fields.pop("start_unix_ns", 0),
        duration_ns=end if duration_ns is None else duration_ns,
        layout=layout,
        start_ns=np.array([span.start_ns for span in spans], dtype=np.int64),
        host_ns=np.array([span.host_ns for span in spans], dtype=np.int64),
        **columns,
        **fields,
    )


def _column(values: list[int | None]) -> Any:
    if all(value is None for value in values):
        return None
    return np.array([NOT_MEASURED if value is None else value for value in values], dtype=np.int64)
