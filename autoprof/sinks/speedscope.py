"""``trace.speedscope.json``: a window of steps for speedscope (https://www.speedscope.app), for every rank.

Evented profiles, one a track, in nanoseconds. Source of the format: speedscope's ``file-format-schema.json``.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from .._storage.atomic import open_replacing, write_atomic
from ..diagnose import SavedSteps
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, Export, SinkKind
from ._timeline import BYTES_PER_MB, GRID_NS, STEP, Slicer, StepWindow, Track, WindowOptions, track_name

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


class SpeedscopeOptions(WindowOptions):
    """The file `trace.speedscope.json`, for speedscope: a window of steps."""


Place = tuple[Track, int]
"""A track and a row of it: one profile."""


class SpeedscopeEncoder:
    """Gather the frames of one rank; ``profiles`` refer to ``frames``, which the ranks of one file share."""

    def __init__(
        self,
        rank: int = 0,
        *,
        origin_unix_ns: int | None = None,
        frames: dict[tuple[str, str | None], int] | None = None,
    ) -> None:
        self._rank = rank
        self._slicer = Slicer(origin_unix_ns)
        self._frames: dict[tuple[str, str | None], int] = {} if frames is None else frames
        self._events: dict[Place, list[dict[str, Any]]] = {}

    @property
    def size(self) -> int:
        """The size of the events gathered so far, in bytes, about."""
        return 45 * sum(map(len, self._events.values()))

    def add(self, frame: StepFrame) -> None:
        """Add one step."""
        layout = frame.layout
        for place, slices in groupby(self._slicer.slices(frame), key=lambda one: (one.track, one.row)):
            events, open_ = self._events.setdefault(place, []), list[tuple[int, int]]()
            for one in slices:
                _close(events, open_, one.start)
                key: tuple[str, str | None] = ("step", None)
                if one.span != STEP:
                    key = layout.phases[one.span].qualify(layout.names[one.span]), layout.fqns[one.span]
                number = self._frames.setdefault(key, len(self._frames))
                events.append({"type": "O", "frame": number, "at": one.start * GRID_NS})
                open_.append((number, one.end))
            _close(events, open_, None)

    def profiles(self) -> list[dict[str, Any]]:
        """Return one profile a track."""
        return [
            {
                "type": "evented", "name": f"rank {self._rank}: {track_name(*place)}", "unit": "nanoseconds",
                "startValue": 0, "endValue": max(event["at"] for event in events), "events": events,
            }
            for place, events in sorted(self._events.items(), key=lambda item: _order(*item[0]))
        ]  # fmt: skip


def _close(events: list[dict[str, Any]], open_: list[tuple[int, int]], before: int | None) -> None:
    """End the slices that are over at this point; without one, all."""
    while open_ and (before is None or open_[-1][1] <= before):
        number, end = open_.pop()
        events.append({"type": "C", "frame": number, "at": end * GRID_NS})


def _order(track: Track, row: int) -> tuple[bool, bool, int, int]:
    """Order the training thread first: speedscope shows the first profile when the file is opened."""
    kind, number = track
    return number < 0, kind == "device", number, row


def speedscope_file(encoders: list[SpeedscopeEncoder], frames: dict[tuple[str, str | None], int], name: str) -> str:
    """Return the whole file for these ranks."""
    shared = [{"name": label, **({} if fqn is None else {"file": fqn})} for label, fqn in frames]
    profiles = [profile for encoder in encoders for profile in encoder.profiles()]
    head = {"$schema": SCHEMA, "name": name, "exporter": "autoprof", "activeProfileIndex": 0}
    return json.dumps({**head, "shared": {"frames": shared}, "profiles": profiles}, ensure_ascii=False) + "\n"


class SpeedscopeSink:
    """Gather the steps of the window and write them at its end: the format cannot be written in parts."""

    def __init__(self, options: SpeedscopeOptions, run: RunInfo) -> None:
        folder = folder_of(run)
        self._path = folder.rank_path / "trace.speedscope.json"
        self._name = folder.path.name
        self._window = StepWindow(options.first, options.count)
        self._limit = options.max_mb * BYTES_PER_MB
        self._frames: dict[tuple[str, str | None], int] = {}
        self._encoder: SpeedscopeEncoder | None = SpeedscopeEncoder(run.rank, frames=self._frames)

    def write(self, frame: StepFrame) -> None:
        """Gather the frame if it is in the window."""
        encoder = self._encoder
        if encoder is None:
            return
        if self._window.includes(frame):
            encoder.add(frame)
            if encoder.size >= self._limit:
                self._finish()
        elif self._window.over:
            self._finish()

    def _finish(self) -> None:
        encoder, self._encoder = self._encoder, None
        if encoder is not None and encoder.size:
            write_atomic(self._path, speedscope_file([encoder], self._frames, self._name))

    def close(self, summary: Summary) -> None:
        """Write the gathered steps, unless that is done."""
        self._finish()


def export_speedscope(saved: SavedSteps, path: Path) -> None:
    """Write one file with the profiles of all ranks."""
    origin = saved.origin_unix_ns()
    frames: dict[tuple[str, str | None], int] = {}
    encoders = []
    for rank in saved.ranks:
        encoder = SpeedscopeEncoder(rank, origin_unix_ns=origin, frames=frames)
        for frame in saved.frames(rank):
            encoder.add(frame)
        encoders.append(encoder)
    with open_replacing(path) as file:
        file.write(speedscope_file(encoders, frames, saved.run.path.name))


SINK = SinkKind(
    SpeedscopeOptions,
    SpeedscopeSink,
    in_folder=True,
    every_rank=True,
    close_order=CloseOrder.FILES,
    exports=(Export("speedscope", "a file for www.speedscope.app", export_speedscope),),
)
