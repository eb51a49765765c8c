"""``trace.json``: a window of steps for Perfetto (ui.perfetto.dev) or chrome://tracing, for every rank.

JSON in the array form of the Trace Event Format, one event a line. Every line but the first begins with a comma, and
the format makes the closing bracket optional, so the file of a killed run is as valid as that of a finished one.
Source of the format: "Trace Event Format", docs of the Catapult project; the importer's errors of Perfetto (slices that
overlap, negative times) are from the source of its JSON importer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from .._ranks import step_collectives
from .._stats.unit_rates import LogPeriods
from .._storage.atomic import open_replacing
from .._storage.line_file import FLUSH_S, LineFile
from .._units import UNITS
from ..diagnose import SavedSteps
from ..frame import NOT_MEASURED, Layout, StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, Export, SinkKind
from ._rank_timeline import MARGIN_STEPS, CollectiveLink, RankTimeline, align_ranks
from ._timeline import BYTES_PER_MB, GRID_NS, STEP, LayoutTracks, Slicer, StepWindow, Track, WindowOptions, track_name


class TraceOptions(WindowOptions):
    """The file `trace.json`, for Perfetto: a window of steps."""


OPEN: Final = "[\n"
CLOSE: Final = "]\n"

PROCESS_STRIDE: Final = 100_000
"""Ranks are processes; the distance between their numbers leaves numbers for the tracks of each."""
_GRID_PER_US: Final = 1000 // GRID_NS

_dumps: Final[Callable[[Any], str]] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class TraceEncoder:
    """Turn the frames of one rank into lines of trace events.

    ``origin_unix_ns`` is the start of the timeline, by default the first step's start; ranks in one file share it.
    ``first`` is True for the encoder that writes the first line of a file. ``links`` are the arrows to other ranks by
    step and span; ``label`` is shown beside the rank's name.
    """

    def __init__(
        self,
        rank: int = 0,
        *,
        origin_unix_ns: int | None = None,
        first: bool = True,
        links: Mapping[tuple[int, int], CollectiveLink] = MappingProxyType({}),
        label: str | None = None,
    ) -> None:
        self._rank = rank
        self._links = links
        self._label = label
        self._pid = (rank + 1) * PROCESS_STRIDE
        self._slicer = Slicer(origin_unix_ns)
        self._first = first
        self._begun = False
        self._tids: dict[tuple[Track, int], int] = {}
        self._flows = rank << 40
        self._static: dict[Layout, list[str]] = {}
        self._periods = LogPeriods()

    def encode(self, frame: StepFrame) -> str:
        """Return the frame's events, each a line that begins with a comma (but the first line of a file)."""
        events: list[str] = []
        slices = list(self._slicer.slices(frame))
        if not self._begun:
            self._begun = True
            events += self._process()
        tracks = self._slicer.tracks_of(frame.layout)
        static, arrows = self._spans(frame.layout), self._arrows(tracks, frame)
        memory = _memory_args(frame)
        end = 0
        for span, track, row, start, stop in slices:
            tid = self._tids.get((track, row)) or self._begin_track(events, track, row)
            place = f'"pid":{self._pid},"tid":{tid},"ts":{_us(start)},"dur":{_us(stop - start)}'
            if span == STEP:
                end = stop if track[0] == "host" else end
                events.append(
                    f'{{"ph":"X","name":"step {frame.step}","cat":"step",{place},"args":{_step_args(frame)}}}'
                )
            else:
                arrow = arrows.get(span, "") if track[0] == "host" else ""
                link = self._links.get((frame.step, span))
                more = memory[span] if memory else ""
                if link is not None and link.kind == track[0]:
                    arrow, more = _link_arrow(link), more + _link_args(link)
                events.append(f"{static[span]}{more}}},{place}{arrow}}}")
        events += self._counters(frame, end)
        lines = "".join(f",{event}\n" for event in events)
        if self._first:
            self._first = False
            return lines[1:]
        return lines

    def _process(self) -> list[str]:
        origin = {"origin_unix_ns": str(self._slicer.placement.origin_unix_ns)}
        facts: list[tuple[str, dict[str, Any]]] = [
            ("process_name", {"name": f"rank {self._rank}", **origin}),
            ("process_sort_index", {"sort_index": self._rank}),
            *([] if self._label is None else [("process_labels", {"labels": self._label})]),
        ]
        return [
            _dumps({"ph": "M", "pid": self._pid, "tid": self._pid, "name": name, "args": args}) for name, args in facts
        ]

    def _begin_track(self, events: list[str], track: Track, row: int) -> int:
        number = self._tids[track, row] = len(self._tids) + 1
        tid = self._tids[track, row] = self._pid + number
        order = {"host": 0, "device": 10_000}[track[0]] + 100 * (track[1] if track[1] >= 0 else 90 - track[1]) + row
        facts = [("thread_name", {"name": track_name(track, row)}), ("thread_sort_index", {"sort_index": order})]
        events += [
            _dumps({"ph": "M", "pid": self._pid, "tid": tid, "name": name, "args": args}) for name, args in facts
        ]
        return tid

    def _spans(self, layout: Layout) -> list[str]:
        """Return the constant part of each span's event; ``args`` is left open."""
        static = self._static.get(layout)
        if static is None:
            if len(self._static) >= 128:
                self._static.clear()
            static = self._static[layout] = []
            for name, fqn, phase in zip(layout.names, layout.fqns, layout.phases, strict=True):
                args = {"name": name, "phase": str(phase), **({} if fqn is None else {"fqn": fqn})}
                head = _dumps({"ph": "X", "name": phase.qualify(name), "cat": str(phase), "args": args})
                static.append(head[:-2])
        return static

    def _arrows(self, tracks: LayoutTracks, frame: StepFrame) -> dict[int, str]:
        """Return the part of a span's event that makes it one end of an arrow from a forward to its backward."""
        arrows: dict[int, str] = {}
        starts = frame.start_ns.tolist() if tracks.flows else []
        for forward, backward in tracks.flows:
            if starts[backward] < starts[forward]:  # paired by name alone, it is the backward of another call
                continue
            self._flows += 1
            arrows[forward] = f',"bind_id":"{self._flows:#x}","flow_out":true'
            arrows[backward] = f',"bind_id":"{self._flows:#x}","flow_in":true'
        return arrows

    def _counters(self, frame: StepFrame, at: int) -> list[str]:
        place = f'"pid":{self._pid},"tid":{self._pid},"ts":{_us(at)}'
        values: list[tuple[str, Mapping[str, float]]] = [("memory", frame.memory)] if frame.memory else []
        scalars = {name: value for name, value in frame.scalars.items() if isfinite(value)}
        samples = self._periods.add(frame).get(UNITS[0])
        throughput = None if samples is None else samples.per_second
        if throughput is not None:
            values.append(("throughput", {"samples_per_s": throughput}))
        values += [(name, {"value": value}) for name, value in scalars.items()]
        return [f'{{"ph":"C","name":{_dumps(name)},{place},"args":{_dumps(dict(args))}}}' for name, args in values]


def _us(points: int) -> str:
    """Format points of the grid as microseconds, exactly."""
    whole, rest = divmod(points, _GRID_PER_US)
    return f"{whole}.{rest * GRID_NS:03d}" if rest else str(whole)


def _step_args(frame: StepFrame) -> str:
    args: dict[str, Any] = {"duration_ns": frame.duration_ns}
    if frame.device_duration_ns is not None:
        args["device_duration_ns"] = frame.device_duration_ns
    args |= {"overhead_ns": frame.overhead_ns, "warmup": frame.warmup}
    if frame.dropped:
        args["dropped"] = frame.dropped
    args["scalars"] = {name: value if isfinite(value) else repr(float(value)) for name, value in frame.scalars.items()}
    return _dumps(args)


def _link_arrow(link: CollectiveLink) -> str:
    """Return the part of a call's event that joins it to the calls of the other ranks, in the order of entering."""
    into, out = ',"flow_in":true' if link.comes_in else "", ',"flow_out":true' if link.goes_out else ""
    return f',"bind_id":"{link.flow:#x}"{into}{out}'


def _link_args(link: CollectiveLink) -> str:
    if link.last is None:
        return ""
    return f',"last_to_enter":"rank {link.last}","entered_earlier_by_ns":{link.waited_ns}'


def _memory_args(frame: StepFrame) -> list[str]:
    """Return the memory readings of each span, empty where it has none."""
    if frame.memory_start_bytes is None or frame.memory_end_bytes is None:
        return []
    return [
        "" if NOT_MEASURED in (start, end) else f',"memory_start_bytes":{start},"memory_end_bytes":{end}'
        for start, end in zip(frame.memory_start_bytes.tolist(), frame.memory_end_bytes.tolist(), strict=True)
    ]


class TraceSink:
    """Write the steps of the window; close the file at its end, or when the size limit is reached."""

    def __init__(self, options: TraceOptions, run: RunInfo) -> None:
        self._window = StepWindow(options.first, options.count)
        self._bytes_left = options.max_mb * BYTES_PER_MB - len(OPEN) - len(CLOSE)
        self._encoder = TraceEncoder(run.rank)
        self._file = LineFile(folder_of(run).rank_path / "trace.json", FLUSH_S, run.clock)
        self._file.write(OPEN)
        self._open = True

    def write(self, frame: StepFrame) -> None:
        """Append the frame's events if it is in the window."""
        if not self._open or not self._window.includes(frame):
            if self._window.over:
                self._finish()
            return
        events = self._encoder.encode(frame)
        self._bytes_left -= len(events.encode("utf-8", "replace"))
        if self._bytes_left < 0:
            self._finish()
        else:
            self._file.write(events)

    def _finish(self) -> None:
        if self._open:
            self._open = False
            try:
                self._file.write(CLOSE)
            finally:
                self._file.close()

    def close(self, summary: Summary) -> None:
        """Close the array and the file."""
        self._finish()


def write_trace(
    path: Path,
    frames: Callable[[int], Iterable[StepFrame]],
    timeline: RankTimeline,
    ranks: Sequence[int],
    max_bytes: int | None = None,
) -> None:
    """Write the frames of each rank to one trace, on one timeline; up to ``max_bytes``, with a fair share a rank."""
    first = True
    share = None if max_bytes is None else max_bytes // max(len(ranks), 1)
    with open_replacing(path) as file:
        file.write(OPEN)
        for rank in ranks:
            encoder = TraceEncoder(
                rank,
                origin_unix_ns=timeline.origin_unix_ns,
                first=first,
                links=timeline.links.get(rank, {}),
                label=timeline.describe(rank),
            )
            left = share
            for frame in frames(rank):
                events = encoder.encode(timeline.place(rank, frame))
                if left is not None:
                    left -= len(events.encode("utf-8", "replace"))
                    if left < 0:
                        break
                file.write(events)
                first = False
        file.write(CLOSE)


def export_trace(saved: SavedSteps, path: Path) -> str | None:
    """Write one trace in which each rank is a process, on one timeline; return the error of their clocks in words."""
    if len(saved.ranks) == 1:
        write_trace(path, saved.frames, RankTimeline(), saved.ranks)
        return None
    steps = {rank: [step_collectives(frame) for frame in saved.frames(rank, MARGIN_STEPS)] for rank in saved.ranks}
    clocks = {rank: saved.run.clock(rank) for rank in saved.ranks}
    timeline = align_ranks(steps, clocks, saved.first, saved.last)
    write_trace(path, saved.frames, timeline, saved.ranks)
    return timeline.summary


SINK = SinkKind(
    TraceOptions,
    TraceSink,
    in_folder=True,
    every_rank=True,
    close_order=CloseOrder.FILES,
    exports=(Export("trace", "a trace for ui.perfetto.dev", export_trace),),
)
