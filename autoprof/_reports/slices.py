"""A step as slices on tracks: what the trace and speedscope draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ..frame import NOT_MEASURED, Layout, Nanoseconds, StepFrame
from .timeline import Placement, Rows, Shape, Track, on_grid

STEP: Final = -1
"""In a span's place: the whole step."""
SHAPES: Final = 128
"""Layouts remembered; a run whose steps all differ forgets them all now and then."""


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
        self.placement = Placement(origin_unix_ns)
        self._rows = Rows()
        self._shapes: dict[Layout, Shape] = {}

    def shape(self, layout: Layout) -> Shape:
        """Return what is known of a layout."""
        shape = self._shapes.get(layout)
        if shape is None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            shape = self._shapes[layout] = Shape(layout)
        return shape

    def slices(self, frame: StepFrame) -> Iterator[Slice]:
        """Yield the frame's slices track by track, each track in order of time and an outer slice before an inner."""
        host, device = self.placement.place(frame)
        shape = self.shape(frame.layout)
        yield from self._track_by_track(shape, shape.by_track, ("host", 0), host, frame.duration_ns, frame)
        if frame.device_duration_ns is not None:
            yield from self._track_by_track(
                shape, shape.by_lane, ("device", 0), device, frame.device_duration_ns, frame
            )

    def _track_by_track(
        self,
        shape: Shape,
        groups: dict[Track, list[int]],
        home: Track,
        at_ns: int,
        duration_ns: int,
        frame: StepFrame,
    ) -> Iterator[Slice]:
        starts_ns, lengths_ns = frame.start_ns, frame.host_ns
        if home[0] == "device" and frame.device_start_ns is not None and frame.device_ns is not None:
            starts_ns, lengths_ns = frame.device_start_ns, frame.device_ns
        begin, end = (int(point) for point in on_grid(np.array([at_ns, at_ns + duration_ns])))
        starts, ends = on_grid(at_ns + starts_ns), on_grid(at_ns + starts_ns + lengths_ns)
        if home not in groups:
            yield Slice(STEP, home, self._rows.assign(home, [begin], [end])[0], begin, end)
        for track, group in groups.items():
            spans = group if home[0] == "host" else [span for span in group if lengths_ns[span] != NOT_MEASURED]
            yield from self._one_track(shape, track, spans, starts[spans], ends[spans], (begin, end), track == home)

    def _one_track(
        self,
        shape: Shape,
        track: Track,
        spans: list[int],
        starts: Nanoseconds,
        ends: Nanoseconds,
        step: tuple[int, int],
        is_home: bool,
    ) -> Iterator[Slice]:
        inside = is_home and len(spans) > 0 and starts.min() >= step[0] and ends.max() <= step[1]
        if inside and shape.nests(spans, starts, ends) and self._rows.take(track, *step):
            yield Slice(STEP, track, 0, *step)
            for span, start, end in zip(spans, starts.tolist(), ends.tolist(), strict=True):
                yield Slice(span, track, 0, start, end)
            return
        members, begins, finishes = list(spans), starts.tolist(), ends.tolist()
        if is_home:
            members, begins, finishes = [STEP, *members], [step[0], *begins], [step[1], *finishes]
        rows = self._rows.assign(track, begins, finishes)
        for i in sorted(range(len(members)), key=lambda i: (rows[i], begins[i], -finishes[i], i)):
            yield Slice(members[i], track, rows[i], begins[i], finishes[i])
