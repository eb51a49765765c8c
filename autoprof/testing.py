"""Doubles for tests, ours and yours: a clock that moves when told, a device that lags behind it, a sink that keeps.

clock = FakeClock()
sink = ListSink()
with open_session(model, config, clock=clock, sinks=[sink]) as session:
    …
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from .clocks import Clock, DeviceClock, HostClock, Place
from .session import Session
from .span import NOT_MEASURED, Layout, Span, StepFrame
from .summary import Summary
from .wiring import open_session as _open_session

if TYPE_CHECKING:
    from .config import Config
    from .sinks import Sink

__all__ = ["FakeClock", "FakeDevice", "ListSink", "make_frame", "open_session"]


class FakeClock(HostClock):
    """A host clock in the hands of a test. ``tick_ns`` passes at each reading, so that no two are alike."""

    def __init__(self, start_ns: int = 0, tick_ns: int = 0) -> None:
        self.now_ns = start_ns
        self.tick_ns = tick_ns

    def advance(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns

    def read(self) -> int:
        """Return the time, then let ``tick_ns`` pass."""
        now = self.now_ns
        self.now_ns += self.tick_ns
        return now


class FakeDevice:
    """An asynchronous device with streams, as an event source for ``DeviceClock``.

    ``work(ns)`` queues a kernel of that length on the current stream; it starts when the stream is free, not before
    now. An event is passed ``lag_ns`` after its stream has reached it. ``queries`` and ``waits`` count what a test
    may want to forbid; ``capturing`` behaves as a stream under CUDA-graph capture.
    """

    device_type = "fake"

    def __init__(self, clock: FakeClock, lag_ns: int = 0) -> None:
        self.clock = clock
        self.lag_ns = lag_ns
        self.place: Place = (0, 0)
        self.capturing = False
        self.made = 0
        self.queries = 0
        self.waits = 0
        self._free_at: dict[Place, int] = {}

    def device_clock(self) -> DeviceClock:
        """Return a clock that reads this device's events and the test's host clock."""
        return DeviceClock(self, now=self.clock.read)

    def work(self, ns: int) -> None:
        """Queue ``ns`` of work on the current stream; the host does not wait."""
        self._free_at[self.place] = self._reached() + ns

    @contextmanager
    def on(self, device: int = 0, stream: int = 0) -> Iterator[None]:
        """Make another device and stream current."""
        before, self.place = self.place, (device, stream)
        try:
            yield
        finally:
            self.place = before

    def _reached(self) -> int:
        return max(self.clock.now_ns, self._free_at.get(self.place, 0))

    def here(self) -> Place | None:
        return None if self.capturing else self.place

    def new(self) -> list[int]:
        self.made += 1
        return [-1]

    def record(self, event: list[int], place: Place) -> None:
        event[0] = self._reached()

    def query(self, event: list[int]) -> bool:
        self.queries += 1
        return event[0] + self.lag_ns <= self.clock.now_ns

    def elapsed_ns(self, start: list[int], end: list[int]) -> int:
        return end[0] - start[0]

    def synchronize(self, event: list[int]) -> None:
        self.waits += 1
        self.clock.now_ns = max(self.clock.now_ns, event[0] + self.lag_ns)


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
) -> Session:
    """Do what ``autoprof.instrument`` does, but read this clock."""
    return _open_session(model, config, optimizer=optimizer, sinks=sinks, clock=clock)


def make_frame(spans: Sequence[Span], *, step: int = 1, duration_ns: int | None = None, **fields: Any) -> StepFrame:
    """Build a frame of spans, parents first; the step ends with the last span unless ``duration_ns`` says otherwise."""
    layout = Layout(
        names=tuple(span.name for span in spans),
        fqns=tuple(span.fqn for span in spans),
        phases=tuple(span.phase for span in spans),
        parents=tuple(-1 if span.parent is None else span.parent for span in spans),
        calls=tuple(span.calls for span in spans),
        lanes=tuple(span.lane for span in spans),
    )
    end = max((span.start_ns + span.host_ns for span in spans), default=0)
    columns = {
        name: _column([getattr(span, name) for span in spans])
        for name in ("device_start_ns", "device_ns", "memory_start_bytes", "memory_end_bytes")
    }
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
