"""Where spans lie on a timeline: one step after the other, and on each track only what nests.

Viewers want the slices of a track nested or apart. On one stream, and in one thread, spans are so by themselves; where
they are not (durations measured elsewhere, streams that run into the next step) what overlaps gets a row of its own.
Times are put on a grid of 1/8 µs: in microseconds its points are exact binary fractions, where thousandths are not, and
viewers that multiply and cut off would see children stick out of their parents by a nanosecond and drop them. That is
finer than any clock that autoprof reads can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from ..frame import LOGGED_LANE, STREAM_LANES, UNTIMED_LANE, Layout, Nanoseconds, Phase, StepFrame

GRID_NS: Final = 125
"""The grid of the timeline: 1/8 µs."""

SETS: Final = 8
"""Sets of spans of one layout of which it is remembered how they nest: those of the host, of each stream."""

Track = tuple[str, int]
"""``host`` and a thread, or ``device`` and a lane; ``host`` and a negative number for what belongs to neither."""


class Placement:
    """Put steps one after the other, in nanoseconds from the first one's start.

    A step lies where the wall clock says, but never before the end of the one before it: the wall clock is read a
    little after the step's start, and may be set. On a device a step's start is put where the host began it (how far
    the device lagged behind is not known), but again never before the end of the step before.
    """

    def __init__(self, origin_unix_ns: int | None = None) -> None:
        self.origin_unix_ns = origin_unix_ns
        self._host_end = 0
        self._device_end = 0

    def place(self, frame: StepFrame) -> tuple[int, int]:
        """Return where the step begins for the host and for the device."""
        if self.origin_unix_ns is None:
            self.origin_unix_ns = frame.start_unix_ns
        host = max(self._host_end, frame.start_unix_ns - self.origin_unix_ns)
        device = max(self._device_end, host)
        self._host_end = host + frame.duration_ns
        self._device_end = device + (frame.device_duration_ns or 0)
        return host, device


class Rows:
    """Spread the intervals of each track over as few rows as nest, from step to step."""

    def __init__(self) -> None:
        self._busy: dict[Track, list[int]] = {}

    def assign(self, track: Track, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Return a row for each interval: within a row any two are nested or apart. Earlier calls came earlier."""
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

    def take(self, track: Track, start: int, end: int) -> bool:
        """Take an interval that holds all others of a step on the first row; say whether that is free."""
        busy = self._busy.setdefault(track, [0])
        if start < busy[0]:
            return False
        busy[0] = end
        return True


class Shape:
    """What the timelines of all steps of one layout share."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.tracks: tuple[Track, ...] = tuple(("host", _thread(lane)) for lane in layout.lanes)
        self.by_track: dict[Track, list[int]] = {}
        for span, track in enumerate(self.tracks):
            self.by_track.setdefault(track, []).append(span)
        self.by_lane: dict[Track, list[int]] = {}
        for span, lane in enumerate(layout.lanes):
            if lane >= 0:
                self.by_lane.setdefault(("device", lane), []).append(span)

    @cached_property
    def flows(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a forward and its backward.

        A frame does not say which backward is which call's, so of a name that is called several times the last call
        not yet paired is taken, as in a stack, and only where there are as many backwards as forwards.
        """
        forward: dict[tuple[str, str | None], list[int]] = {}
        pairs: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
        count: dict[tuple[str, str | None], int] = {}
        layout = self.layout
        for span, phase in enumerate(layout.phases):
            key = layout.names[span], layout.fqns[span]
            if not layout.calls[span] or layout.lanes[span] < 0:
                continue
            if phase is Phase.FORWARD:
                forward.setdefault(key, []).append(span)
                count[key] = count.get(key, 0) + 1
            elif phase is Phase.BACKWARD and forward.get(key):
                pairs.setdefault(key, []).append((forward[key].pop(), span))
        return tuple(pair for key, found in pairs.items() if len(found) == count[key] for pair in found)

    def nests(self, spans: Sequence[int], starts: Nanoseconds, ends: Nanoseconds) -> bool:
        """Say whether these spans are in order of time, one after the other inside their parents."""
        parents, before = self._kin(tuple(spans))
        inside = parents >= 0
        child, parent = np.flatnonzero(inside), parents[inside]
        later, earlier = np.flatnonzero(before >= 0), before[before >= 0]
        return bool(
            (starts[1:] >= starts[:-1]).all()
            and (starts[child] >= starts[parent]).all()
            and (ends[child] <= ends[parent]).all()
            and (starts[later] >= ends[earlier]).all()
        )

    def _kin(self, spans: tuple[int, ...]) -> tuple[Nanoseconds, Nanoseconds]:
        """Return, as positions in ``spans``, each one's parent and the sibling before it."""
        kin = self._known.get(spans)
        if kin is None:
            if len(self._known) >= SETS:
                self._known.clear()
            position = {span: at for at, span in enumerate(spans)}
            parents = [position.get(self.layout.parents[span], -1) for span in spans]
            newest: dict[int, int] = {}
            before = []
            for at, parent in enumerate(parents):
                before.append(newest.get(parent, -1))
                newest[parent] = at
            kin = self._known[spans] = np.asarray(parents, dtype=np.int64), np.asarray(before, dtype=np.int64)
        return kin

    @cached_property
    def _known(self) -> dict[tuple[int, ...], tuple[Nanoseconds, Nanoseconds]]:
        return {}


def _thread(lane: int) -> int:
    return lane % STREAM_LANES if lane >= 0 else lane


def track_name(track: Track, row: int) -> str:
    """Name a row of a track for people."""
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


def on_grid(ns: Nanoseconds) -> Nanoseconds:
    """Round down to points of the grid, counted in grid steps; what began before the timeline begins with it."""
    points: Nanoseconds = np.maximum(ns, 0) // GRID_NS
    return points
