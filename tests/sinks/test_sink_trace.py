"""The trace: valid by the format's rules, whatever the frames; its content."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from random_frames import runs
from sink_builders import MS, VRT, frame_of
from trace_rules import check_events

from autoprof.base.frame import STREAM_LANES, StepFrame
from autoprof.base.storage.runs import RunFolder
from autoprof.base.summary import Summary
from autoprof.sinks._base import RunInfo
from autoprof.sinks.trace import TraceEncoder, TraceOptions, TraceSink

STARTS = np.array([0, 10, 170, 290, 300, 310, 660, 831, 852, 920]) * MS
"""Where the spans of the reference step begin."""


def vrt_frame(step: int = 1, **changes: object) -> StepFrame:
    frame = frame_of(step=step, **changes)  # type: ignore[arg-type]
    return StepFrame.of(**{**vars(frame), "start_ns": STARTS, "start_unix_ns": 10**18 + step * 1_000_000_000})


def trace_of(*frames: StepFrame, rank: int = 0) -> list[dict[str, object]]:
    encoder = TraceEncoder(rank)
    return check_events([event for frame in frames for event in encoder.events(frame)])


def slices(events: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    return {str(event["name"]): event for event in events if event["ph"] == "X"}


@settings(max_examples=40)
@given(runs())
def test_every_trace_is_valid(frames: list[StepFrame]) -> None:
    """Whatever nests, overlaps or was not measured: keys, times, tracks and nesting keep to the format."""
    events = trace_of(*frames)
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


def test_the_sink_writes_the_first_recorded_steps_once_it_has_them(tmp_path: Path) -> None:
    """Without the warm-up; a shorter run is written at its end."""
    for steps, written in ((5, ["step 2", "step 3", "step 4"]), (3, ["step 2", "step 3"])):
        folder = RunFolder.create(tmp_path / str(steps))
        sink = TraceSink(TraceOptions(count=3), RunInfo(folder, 0, sys.stdout))
        for step in range(1, steps + 1):
            sink.write(vrt_frame(step, warmup=step == 1))
        file = folder.rank_path / "trace.json"
        assert file.exists() is (steps > 3)
        sink.close(Summary.empty())
        events = check_events(json.loads(file.read_text(encoding="utf-8")))
        assert sorted({str(event["name"]) for event in events if event.get("cat") == "step"}) == written
