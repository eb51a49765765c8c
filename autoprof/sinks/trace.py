"""``trace.json``: some steps for Perfetto (ui.perfetto.dev) or chrome://tracing, of each rank, or of all in one file.

JSON in the array form of the Trace Event Format, one event a line. Source of the format: "Trace Event Format", docs of
the Catapult project; the importer's errors of Perfetto (slices that overlap, negative times) are from the source of its
JSON importer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from ..base.frame import NOT_MEASURED, Layout, StepFrame
from ..base.options import Options
from ..base.stats.unit_rates import LogPeriods
from ..base.storage.atomic import open_replacing
from ..base.summary import Summary
from ..base.units import UNITS
from ..diagnose import SavedSteps
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, Export, SinkKind
from ._timeline import GRID_NS, STEP, Slicer, Track, track_name

Event = dict[str, Any]

_dumps: Final[Callable[[Any], str]] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class TraceEncoder:
    """Turn the frames of one rank into trace events.

    ``origin_unix_ns`` is the start of the timeline, by default the first step's start; ranks in one file share it.
    """

    def __init__(self, rank: int = 0, *, origin_unix_ns: int | None = None) -> None:
        self._rank = rank
        # Ranks are processes; the distance between their numbers leaves numbers for the tracks of each.
        self._pid = (rank + 1) * 100_000
        self._slicer = Slicer(origin_unix_ns)
        self._tids: dict[tuple[Track, int], int] = {}
        self._periods = LogPeriods()

    def events(self, frame: StepFrame) -> list[Event]:
        """Return the frame's events."""
        slices = list(self._slicer.slices(frame))
        events = [] if self._tids else self._process()
        memory = _memory_args(frame)
        end = 0
        for one in slices:
            if (one.track, one.row) not in self._tids:
                events += self._begin_track(one.track, one.row)
            place = {"tid": self._tids[one.track, one.row], "ts": _us(one.start), "dur": _us(one.end - one.start)}
            if one.span == STEP:
                end = one.end if one.track[0] == "host" else end
                step = {"name": f"step {frame.step}", "cat": "step", **place, "args": _step_args(frame)}
                events.append({"ph": "X", "pid": self._pid, **step})
                continue
            args = self._span_args(frame.layout, one.span) | (memory[one.span] if memory else {})
            phase = frame.layout.phases[one.span]
            head = {"ph": "X", "name": phase.qualify(frame.layout.names[one.span]), "cat": str(phase), "pid": self._pid}
            events.append({**head, **place, "args": args})
        return events + self._counters(frame, end)

    @staticmethod
    def _span_args(layout: Layout, span: int) -> Event:
        fqn = layout.fqns[span]
        args = {"name": layout.names[span], "phase": str(layout.phases[span])}
        return args if fqn is None else {**args, "fqn": fqn}

    def _process(self) -> list[Event]:
        origin = {"origin_unix_ns": str(self._slicer.placement.origin_unix_ns)}
        args = {"name": f"rank {self._rank}", **origin}
        return [{"ph": "M", "pid": self._pid, "tid": self._pid, "name": "process_name", "args": args}]

    def _begin_track(self, track: Track, row: int) -> list[Event]:
        tid = self._tids[track, row] = self._pid + len(self._tids) + 1
        order = {"host": 0, "device": 10_000}[track[0]] + 100 * (track[1] if track[1] >= 0 else 90 - track[1]) + row
        facts = [("thread_name", {"name": track_name(track, row)}), ("thread_sort_index", {"sort_index": order})]
        return [{"ph": "M", "pid": self._pid, "tid": tid, "name": name, "args": args} for name, args in facts]

    def _counters(self, frame: StepFrame, at: int) -> list[Event]:
        values: list[tuple[str, Mapping[str, float]]] = [("memory", frame.memory)] if frame.memory else []
        samples = self._periods.add(frame).get(UNITS[0])
        if samples is not None and samples.per_second is not None:
            values.append(("throughput", {"samples_per_s": samples.per_second}))
        values += [(name, {"value": value}) for name, value in frame.scalars.items() if isfinite(value)]
        place = {"pid": self._pid, "tid": self._pid, "ts": _us(at)}
        return [{"ph": "C", "name": name, **place, "args": dict(args)} for name, args in values]


def _us(points: int) -> float:
    """Return points of the grid as microseconds, exactly."""
    return points * GRID_NS / 1000


def _step_args(frame: StepFrame) -> Event:
    args: Event = {"duration_ns": frame.duration_ns}
    if frame.device_duration_ns is not None:
        args["device_duration_ns"] = frame.device_duration_ns
    args |= {"overhead_ns": frame.overhead_ns, "warmup": frame.warmup}
    if frame.dropped:
        args["dropped"] = frame.dropped
    args["scalars"] = {name: value if isfinite(value) else repr(float(value)) for name, value in frame.scalars.items()}
    return args


def _memory_args(frame: StepFrame) -> list[Event]:
    """Return the memory readings of each span, empty where it has none."""
    if frame.memory_start_bytes is None or frame.memory_end_bytes is None:
        return []
    return [
        {} if NOT_MEASURED in (start, end) else {"memory_start_bytes": start, "memory_end_bytes": end}
        for start, end in zip(frame.memory_start_bytes.tolist(), frame.memory_end_bytes.tolist(), strict=True)
    ]


class TraceOptions(Options):
    """The file `trace.json`, for Perfetto: the first recorded steps."""

    count: int = Field(default=20, ge=1, le=1000, strict=True)
    """Number of recorded steps after the warm-up; `autoprof show RUN --steps A:B --trace FILE` writes any others."""


class TraceSink:
    """Keep the first recorded steps, and write them when there are enough, or at the end of the run."""

    def __init__(self, options: TraceOptions, run: RunInfo) -> None:
        self._count = options.count
        self._rank = run.rank
        self._path = folder_of(run).rank_path / "trace.json"
        self._frames: list[StepFrame] = []

    def write(self, frame: StepFrame) -> None:
        """Keep the frame, unless it is of the warm-up or the file is written."""
        if frame.warmup or len(self._frames) == self._count:
            return
        self._frames.append(frame)
        if len(self._frames) == self._count:
            self._write()

    def close(self, summary: Summary) -> None:
        """Write the steps of a shorter run."""
        if len(self._frames) < self._count:
            self._write()

    def _write(self) -> None:
        encoder = TraceEncoder(self._rank)
        _write_events(self._path, (event for frame in self._frames for event in encoder.events(frame)))


def export_trace(saved: SavedSteps, path: Path) -> None:
    """Write one trace in which each rank is a process; all are on the timeline that begins with the first step."""
    _write_events(path, _all_events(saved))


def _write_events(path: Path, events: Iterable[Event]) -> None:
    with open_replacing(path) as file:
        before = "[\n"
        for event in events:
            file.write(f"{before}{_dumps(event)}")
            before = ",\n"
        file.write("\n]\n")


def _all_events(saved: SavedSteps) -> Iterator[Event]:
    origin_unix_ns = saved.origin_unix_ns()
    for rank in saved.ranks:
        encoder = TraceEncoder(rank, origin_unix_ns=origin_unix_ns)
        for frame in saved.frames(rank):
            yield from encoder.events(frame)


SINK = SinkKind(
    TraceOptions,
    TraceSink,
    in_folder=True,
    every_rank=True,
    close_order=CloseOrder.FILES,
    exports=(Export("trace", "a trace for ui.perfetto.dev", export_trace),),
)
