"""A step as slices on tracks, for the viewers of the trace.

Viewers require that any two slices of a track are nested or disjoint. On one stream, and in one thread, spans are so by
themselves; spans that overlap (durations measured elsewhere, streams that run into the next step) get rows of their
own. Times are rounded to a grid of 1/8 µs: in microseconds its points are exact binary fractions, where thousandths are
not, and viewers that multiply and truncate would see children end a nanosecond after their parents and drop them. The
grid is finer than the resolution of any clock that autoprof reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from ..base.frame import LOGGED_LANE, NOT_MEASURED, STREAM_LANES, UNTIMED_LANE, Layout, Nanoseconds, StepFrame
from ..base.stats.layout_cache import cached_by_layout

GRID_NS: Final = 125
"""The grid of the timeline: 1/8 µs."""

Track = tuple[str, int]
"""``host`` and a thread, or ``device`` and a lane; ``host`` and a negative lane for spans of neither."""


class StepPlacement:
    """Place steps one after the other, in nanoseconds from the start of the first one.

    A step begins at its wall-clock time, but never before the end of the previous step: the wall clock is read a
    little after the step's start, and may be set back. On a device a step begins when the host began it (the lag of
    the device is unknown), but again never before the end of the previous step.
    """

    def __init__(self, origin_unix_ns: int | None = None) -> None:
        self.origin_unix_ns = origin_unix_ns
        self._host_end = 0
        self._device_end = 0

    def place(self, frame: StepFrame) -> tuple[int, int]:
        """Return the start of the step on the host and on the device."""
        if self.origin_unix_ns is None:
            self.origin_unix_ns = frame.start_unix_ns
        host = max(self._host_end, frame.start_unix_ns - self.origin_unix_ns)
        device = max(self._device_end, host)
        self._host_end = host + frame.duration_ns
        self._device_end = device + (frame.device_duration_ns or 0)
        return host, device


class Rows:
    """Distribute the intervals of each track over as few rows as possible, from step to step."""

    def __init__(self) -> None:
        self._busy: dict[Track, list[int]] = {}

    def assign(self, track: Track, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Return a row for each interval: within a row any two, of earlier calls too, are nested or disjoint."""
        busy = self._busy.setdefault(track, [])
        found, stacks = [0] * len(starts), [list[int]() for _ in busy]
        last = busy[:]
        for i in sorted(range(len(starts)), key=lambda i: (starts[i], -ends[i], i)):
            row = self._fitting(starts[i], ends[i], stacks, busy)
            if row == len(stacks):
                stacks.append([])
                busy.append(0)
                last.append(0)
            stacks[row].append(ends[i])
            last[row] = max(last[row], ends[i])
            found[i] = row
        busy[:] = last
        return found

    @staticmethod
    def _fitting(start: int, end: int, stacks: list[list[int]], busy: list[int]) -> int:
        for row, stack in enumerate(stacks):
            while stack and stack[-1] <= start:
                stack.pop()
            if end <= stack[-1] if stack else start >= busy[row]:
                return row
        return len(stacks)


@cached_by_layout
def _spans_by_track(layout: Layout) -> tuple[dict[Track, list[int]], dict[Track, list[int]]]:
    """Return the spans of each track of the host, and of each of the device."""
    host: dict[Track, list[int]] = {}
    device: dict[Track, list[int]] = {}
    for span, lane in enumerate(layout.lanes):
        host.setdefault(("host", lane % STREAM_LANES if lane >= 0 else lane), []).append(span)
        if lane >= 0:
            device.setdefault(("device", lane), []).append(span)
    return host, device


def track_name(track: Track, row: int) -> str:
    """Return the name of a row of a track for people."""
    kind, number = track
    if number == LOGGED_LANE:
        name = "log_timing"
    elif number == UNTIMED_LANE:
        name = "no device time (host clock)"
    elif kind == "host":
        name = "training thread" if number == 0 else f"thread {number}"
    else:
        thread, stream = number % STREAM_LANES, number // STREAM_LANES
        name = "device" if stream == 0 else f"device, stream {stream}"
        name += "" if thread == 0 else f", thread {thread}"
    return name if row == 0 else f"{name} +{row}"


def _on_grid(ns: Nanoseconds) -> Nanoseconds:
    """Round down to points of the grid, in units of ``GRID_NS``; times before the timeline are its start."""
    points: Nanoseconds = np.maximum(ns, 0) // GRID_NS
    return points


STEP: Final = -1
"""In a span's place: the whole step."""


class Slice(NamedTuple):
    """A span, or the ``STEP``, on a row of a track; times are points of the grid from the timeline's start."""

    span: int
    track: Track
    row: int
    start: int
    end: int


class Slicer:
    """Turn the frames of one rank into slices, in order."""

    def __init__(self, origin_unix_ns: int | None = None) -> None:
        self.placement = StepPlacement(origin_unix_ns)
        self._rows = Rows()

    def slices(self, frame: StepFrame) -> Iterator[Slice]:
        """Yield the frame's slices track by track, each track in order of time and an outer slice before an inner."""
        host, device = self.placement.place(frame)
        on_host, on_device = _spans_by_track(frame.layout)
        times = frame.start_ns, frame.host_ns
        yield from self._track_by_track(on_host, ("host", 0), (host, frame.duration_ns), times)
        if frame.device_duration_ns is not None:
            if frame.device_start_ns is not None and frame.device_ns is not None:
                times = frame.device_start_ns, frame.device_ns
            yield from self._track_by_track(on_device, ("device", 0), (device, frame.device_duration_ns), times)

    def _track_by_track(
        self,
        groups: dict[Track, list[int]],
        main: Track,
        step: tuple[int, int],
        times: tuple[Nanoseconds, Nanoseconds],
    ) -> Iterator[Slice]:
        """Yield the slices of each track; ``step`` and ``times`` are a start and a length."""
        at_ns, duration_ns = step
        starts_ns, lengths_ns = times
        begin, end = (int(point) for point in _on_grid(np.array([at_ns, at_ns + duration_ns])))
        starts, ends = _on_grid(at_ns + starts_ns), _on_grid(at_ns + starts_ns + lengths_ns)
        for track, group in {main: [], **groups}.items():
            spans = group if main[0] == "host" else [span for span in group if lengths_ns[span] != NOT_MEASURED]
            members, begins, finishes = list(spans), starts[spans].tolist(), ends[spans].tolist()
            if track == main:
                members, begins, finishes = [STEP, *members], [begin, *begins], [end, *finishes]
            rows = self._rows.assign(track, begins, finishes)
            for i in sorted(range(len(members)), key=lambda i: (rows[i], begins[i], -finishes[i], i)):
                yield Slice(members[i], track, rows[i], begins[i], finishes[i])
