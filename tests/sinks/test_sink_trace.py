"""The trace: valid by the format's rules, whatever the frames; its content; its window."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from random_frames import runs
from sink_builders import MS, VRT, Clock, frame_of, summary_of
from trace_rules import check

from autoprof._storage.runs import RunFolder
from autoprof.frame import STREAM_LANES, StepFrame
from autoprof.sinks._base import RunInfo
from autoprof.sinks.trace import CLOSE, OPEN, TraceEncoder, TraceOptions, TraceSink

STARTS = np.array([0, 10, 170, 290, 300, 310, 660, 831, 852, 920]) * MS
"""Where the spans of the reference step begin."""


def vrt_frame(step: int = 1, **changes: object) -> StepFrame:
    frame = frame_of(step=step, **changes)  # type: ignore[arg-type]
    return StepFrame.of(**{**vars(frame), "start_ns": STARTS, "start_unix_ns": 10**18 + step * 1_000_000_000})


def trace_of(*frames: StepFrame, rank: int = 0) -> list[dict[str, object]]:
    encoder = TraceEncoder(rank)
    return check(OPEN + "".join(encoder.encode(frame) for frame in frames) + CLOSE)


def slices(events: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    return {str(event["name"]): event for event in events if event["ph"] == "X"}


def open_sink(tmp_path: Path, clock: Clock, **options: object) -> tuple[TraceSink, Path]:
    run = RunInfo(RunFolder.create(tmp_path), 0, io.StringIO(), clock)
    assert run.folder is not None
    return TraceSink(TraceOptions(**options), run), run.folder.rank_path / "trace.json"


@settings(max_examples=40)
@given(runs())
def test_every_trace_is_valid(frames: list[StepFrame]) -> None:
    """Whatever nests, overlaps or was not measured: keys, times, tracks and nesting keep to the format."""
    encoder = TraceEncoder()
    text = OPEN
    for frame in frames:
        text += encoder.encode(frame)
        check(text)  # without its end, as a run that was killed leaves it
    events = check(text + CLOSE)
    assert text.count("\n") == len(events) + 1
    named = [event for event in events if event["ph"] == "X" and event["cat"] == "step"]
    with_device = sum(frame.device_duration_ns is not None for frame in frames)
    assert len(named) == len(frames) + with_device


@settings(max_examples=40)
@given(runs(max_steps=3))
def test_no_span_is_left_out(frames: list[StepFrame]) -> None:
    """Each span is a slice of the host, and of the device where the device saw it."""
    events = trace_of(*frames)
    seen = sum(event["ph"] == "X" and event["cat"] != "step" for event in events)
    expected = 0
    for frame in frames:
        expected += len(frame.layout)
        if frame.device_duration_ns is not None:
            assert frame.device_ns is not None
            lanes = np.array(frame.layout.lanes, dtype=np.int64)
            expected += int(((lanes >= 0) & (frame.device_ns >= 0)).sum())
    assert seen == expected


def test_a_slice_is_where_its_span_was() -> None:
    """Times are microseconds from the first step's start, and an inner span lies in its parent."""
    found = slices(trace_of(vrt_frame()))
    assert (found["step 1"]["ts"], found["step 1"]["dur"]) == (0, 1_000_000)
    assert (found["VRT/Stage8"]["ts"], found["VRT/Stage8"]["dur"]) == (10_000, 150_000)
    assert found["VRT/Stage8 [recompute]"]["ts"] == 310_000
    assert found["Spike时间自注意力"]["args"] == {"name": "Spike时间自注意力", "phase": "forward"}


def test_the_device_has_tracks_of_its_own() -> None:
    """A device run shows each span on the host's track and on its stream's."""
    lanes = [0] * 9 + [STREAM_LANES]
    device = np.array([int(ms * MS) for *_, ms in VRT])
    device[8] = -1
    frame = vrt_frame(
        lanes=lanes, device_duration_ns=1200 * MS, device_start_ns=STARTS + 5, device_ns=device, host_bound_ns=device
    )
    events = trace_of(frame)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}  # type: ignore[index]
    places = sorted((tracks[event["tid"]], event["name"]) for event in events if event["ph"] == "X")
    assert ("training thread", "data") in places
    assert ("device", "VRT/Stage8 [backward]") in places
    assert ("device, stream 1", "data") in places
    assert ("device", "optimizer") not in places
    assert ("device", "step 1") in places


def test_what_overlaps_gets_a_row_of_its_own() -> None:
    """Durations that were measured elsewhere may overlap anything, and stick out of nothing."""
    rows = (("io", "user", -1, 10), ("net", "user", -1, 10))
    frame = StepFrame.of(**{**vars(frame_of(rows, lanes=[-1, -1])), "start_ns": np.array([20, 25]) * MS})
    events = trace_of(frame)
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]  # type: ignore[index]
    assert names == ["training thread", "log_timing", "log_timing +1"]


def test_scalars_and_memory_are_counters() -> None:
    """All logged values are passed through; those that JSON cannot express are only in the step's arguments."""
    events = trace_of(
        vrt_frame(scalars={"loss": 0.5, "gpu_util": 93.0, "samples": 2.0, "x": float("nan")}, memory={"rss_bytes": 7})
    )
    counters = {event["name"]: event["args"] for event in events if event["ph"] == "C"}
    assert counters == {
        "memory": {"rss_bytes": 7}, "throughput": {"samples_per_s": 2.0},
        "loss": {"value": 0.5}, "gpu_util": {"value": 93.0}, "samples": {"value": 2.0},
    }  # fmt: skip
    assert slices(events)["step 1"]["args"]["scalars"]["x"] == "nan"  # type: ignore[index]


def test_a_span_shows_the_memory_that_was_read_around_it() -> None:
    """Readings are there as bytes, and a missing one is absent."""
    before, after = np.arange(10) * 100, np.arange(10) * 100 + 7
    after[3] = -1
    found = slices(trace_of(vrt_frame(memory_start_bytes=before, memory_end_bytes=after)))
    assert found["VRT/Stage8"]["args"]["memory_end_bytes"] == 107  # type: ignore[index]
    assert "memory_end_bytes" not in found["VRT [backward]"]["args"]  # type: ignore[operator]


def test_the_window_begins_after_the_warm_up(tmp_path: Path, clock: Clock) -> None:
    """By default warm-up steps are not drawn, and the file is whole as soon as the window is over."""
    sink, path = open_sink(tmp_path, clock, count=2)
    for step in range(1, 7):
        sink.write(vrt_frame(step, warmup=step <= 3))
    steps = [event["name"] for event in json.loads(path.read_text("utf-8")) if event.get("cat") == "step"]
    assert steps == ["step 4", "step 5"]
    sink.close(summary_of([]))


def test_the_size_is_limited(tmp_path: Path, clock: Clock) -> None:
    """A window of all steps ends at the limit, with a whole file."""
    sink, path = open_sink(tmp_path, clock, first=1, count=None, max_mb=1)
    size = len(TraceEncoder().encode(vrt_frame(1)))
    for step in range(1, 3 * 10**6 // size):
        sink.write(vrt_frame(step))
    sink.close(summary_of([]))
    assert 900_000 < path.stat().st_size <= 1_000_000
    json.loads(path.read_text("utf-8"))


def test_a_run_without_a_step_leaves_an_empty_trace(tmp_path: Path, clock: Clock) -> None:
    """An empty window is an empty array."""
    sink, path = open_sink(tmp_path, clock)
    sink.close(summary_of([]))
    assert json.loads(path.read_text("utf-8")) == []
