"""The speedscope file: valid by its documented types, balanced, and true."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import given
from random_frames import runs
from sink_builders import Clock, frame_of, summary_of
from test_sink_trace import vrt_frame

from autoprof._storage.runs import RunFolder
from autoprof.frame import StepFrame
from autoprof.sinks._base import RunInfo
from autoprof.sinks.speedscope import SCHEMA, SpeedscopeEncoder, SpeedscopeOptions, SpeedscopeSink, speedscope_file

_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
FORMAT = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": SCHEMA},
        "name": _TEXT,
        "exporter": _TEXT,
        "activeProfileIndex": _NUMBER,
        "shared": {
            "type": "object",
            "required": ["frames"],
            "additionalProperties": False,
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "additionalProperties": False,
                        "properties": {"name": _TEXT, "file": _TEXT, "line": _NUMBER, "col": _NUMBER},
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "name", "unit", "startValue", "endValue", "events"],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "evented"},
                    "name": _TEXT,
                    "unit": {"enum": ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]},
                    "startValue": _NUMBER,
                    "endValue": _NUMBER,
                    "events": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["type", "at", "frame"],
                            "additionalProperties": False,
                            "properties": {"type": {"enum": ["O", "C"]}, "at": _NUMBER, "frame": _NUMBER},
                        },
                    },
                },
            },
        },
    },
}
"""The evented part of the format as speedscope documents it, written by hand, and stricter: no other keys."""


def check(text: str) -> dict[str, Any]:
    """Check a file by its types, and each profile: in order of time, inside its range, opened and closed in turn."""
    data: dict[str, Any] = json.loads(text)
    jsonschema.validate(data, FORMAT)
    for profile in data["profiles"]:
        now, open_ = profile["startValue"], []
        for event in profile["events"]:
            assert now <= event["at"] <= profile["endValue"]
            now = event["at"]
            assert 0 <= event["frame"] < len(data["shared"]["frames"])
            if event["type"] == "O":
                open_.append(event["frame"])
            else:
                assert open_.pop() == event["frame"]
        assert not open_
    return data


def file_of(*frames: StepFrame) -> dict[str, Any]:
    shared: dict[tuple[str, str | None], int] = {}
    encoder = SpeedscopeEncoder(frames=shared)
    for frame in frames:
        encoder.add(frame)
    return check(speedscope_file([encoder], shared, "run"))


@given(runs())
def test_every_file_is_valid(frames: list[StepFrame]) -> None:
    """Whatever nests, overlaps or was not measured."""
    file_of(*frames)


def test_a_profile_is_the_account_of_the_step() -> None:
    """The time between the opening and the closing of a frame is that of its span."""
    data = file_of(vrt_frame(), vrt_frame(2))
    names = [frame["name"] for frame in data["shared"]["frames"]]
    assert names.count("VRT/Stage8 [backward]") == 1
    number = names.index("VRT/Stage8 [backward]")
    times = [event["at"] for event in data["profiles"][0]["events"] if event["frame"] == number]
    assert times == [300_000_000, 650_000_000, 1_300_000_000, 1_650_000_000]


def test_the_training_thread_comes_first() -> None:
    """The first profile, which speedscope shows first, has the steps, not logged durations."""
    rows = (("io", "user", -1, 10), ("A", "forward", -1, 10), ("B", "user", -1, 10))
    data = file_of(frame_of(rows, lanes=[-1, 0, 1]))
    names = [profile["name"] for profile in data["profiles"]]
    assert names == ["rank 0: training thread", "rank 0: thread 1", "rank 0: log_timing"]


def open_sink(tmp_path: Path, clock: Clock, **options: object) -> tuple[SpeedscopeSink, Path]:
    run = RunInfo(RunFolder.create(tmp_path), 0, io.StringIO(), clock)
    assert run.folder is not None
    return SpeedscopeSink(SpeedscopeOptions(**options), run), run.folder.rank_path / "trace.speedscope.json"


def test_the_file_is_there_as_soon_as_the_window_is_over(tmp_path: Path, clock: Clock) -> None:
    """A run that is killed later has it; until then there is no half of a file."""
    sink, path = open_sink(tmp_path, clock, first=2, count=2)
    for step in (1, 2, 3):
        sink.write(vrt_frame(step))
    assert not path.exists()
    sink.write(vrt_frame(4))
    data = check(path.read_text("utf-8"))
    step = data["shared"]["frames"].index({"name": "step"})
    assert sum(event["frame"] == step for event in data["profiles"][0]["events"]) == 4
    sink.close(summary_of([]))
    assert os.listdir(path.parent) == [path.name]


def test_the_size_is_limited(tmp_path: Path, clock: Clock) -> None:
    """The gathered steps in memory end with the limit."""
    sink, path = open_sink(tmp_path, clock, first=1, count=None, max_mb=1)
    for step in range(1, 3000):
        sink.write(frame_of(step=step))
    sink.close(summary_of([]))
    assert 900_000 < path.stat().st_size < 1_100_000
