"""One step as a line of JSON, and back."""

import json
from collections.abc import Iterable
from dataclasses import replace
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pytest
from random_frames import same
from sink_builders import frame_of, layout_of

from autoprof.base.frame import Phase, StepFrame
from autoprof.base.storage.records import Frames
from autoprof.base.storage.steps_jsonl import LAYOUTS, FrameEncoder
from tests.saved_records import write_records


def line_of(frame: StepFrame, encoder: FrameEncoder | None = None) -> str:
    """Return the line of a frame whose times are the first ones of ``spans.bin``."""
    return (encoder or FrameEncoder()).encode(frame, frame.phase_ns(), (0, 0))


def read_back(folder: Path, *frames: StepFrame) -> list[StepFrame]:
    """Write frames as records, and read them."""
    return [*Frames(write_records(folder, frames))]


def test_a_line_says_what_people_look_for() -> None:
    """Step, seconds, throughput, phases, memory and every scalar are at the top level."""
    data = json.loads(line_of(frame_of(scalars={"loss": 0.25, "samples": 2.0}, memory={"rss_bytes": 7})))
    assert (data["step"], data["step_time_s"], data["throughput"], data["loss"]) == (1, 1.0, 2.0, 0.25)
    assert data["phases_ms"]["recompute"] == 100.0
    assert sum(data["phases_ms"].values()) == pytest.approx(1000)
    assert data["memory"] == {"rss_bytes": 7}
    assert data["warmup"] is False
    assert data["overhead_ns"] == 3_000_000


def throughputs(frames: Iterable[StepFrame]) -> list[float | None]:
    """Return the throughput in the records of these frames."""
    encoder = FrameEncoder()
    return [json.loads(line_of(frame, encoder)).get("throughput") for frame in frames]


def step_frame(step: int, samples: float | None = None, **changes: Any) -> StepFrame:
    """Make a step of one second with these samples."""
    return replace(frame_of(scalars={} if samples is None else {"samples": samples}), step=step, **changes)


def test_samples_of_several_steps_are_divided_by_their_time() -> None:
    """Where a program logs each third step, the record of that step has the rate of all three."""
    frames = [step_frame(step, None if step % 3 else 6.0) for step in range(1, 10)]
    assert throughputs(frames) == [None, None, 2.0] * 3


def test_samples_logged_in_a_gap_belong_to_the_next_record() -> None:
    """With the time of the gap, and of autoprof's own work at its ends."""
    times = {"gap_ns": 1_500_000_000, "gap_overhead_ns": 500_000_000}
    gap = step_frame(5, 2.0, gap_steps=3, **times, gap_scalars={"samples": 7.0})
    assert throughputs([step_frame(1, 2.0), gap, step_frame(6, 2.0)]) == [2.0, 3.0, 2.0]


def test_unknown_samples_before_a_step_are_null(tmp_path: Path) -> None:
    """The step's own samples have no rate, also where the rates are computed from the records."""
    frames = [step_frame(1, 2.0), step_frame(2), step_frame(3, 2.0, gap_scalars={"samples": nan}), step_frame(4, 2.0)]
    assert json.loads(line_of(frames[2]))["gap_scalars"] == {"samples": None}
    assert throughputs(read_back(tmp_path, *frames)) == [2.0, None, None, 2.0]


def test_samples_of_warm_up_steps_that_logged_none_have_no_rate() -> None:
    """They take longer than others; a warm-up step with a log of its own has its rate, and settling steps count."""
    first = step_frame(1, warmup=True), step_frame(2, 4.0), step_frame(3, 2.0)
    settling = step_frame(6, gap_steps=2, gap_ns=2_000_000_000, warmup=True), step_frame(7, 8.0)
    assert throughputs([*first, *settling]) == [None, None, 2.0, None, 2.0]
    assert throughputs([step_frame(1, 2.0, warmup=True), step_frame(2, 2.0)]) == [2.0, 2.0]


@pytest.mark.parametrize("value", [inf, -inf, nan])
def test_a_scalar_that_json_cannot_say_is_null(tmp_path: Path, value: float) -> None:
    """NaN and infinity keep the line valid JSON, and are read back as NaN and infinity."""
    frame = frame_of(scalars={"loss": value})
    data = json.loads(line_of(frame), parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert data["loss"] is None
    back = read_back(tmp_path, frame)[0].scalars["loss"]
    assert back == value or (isnan(back) and isnan(value))


def test_a_scalar_cannot_replace_a_field(tmp_path: Path) -> None:
    """A scalar called ``step`` is kept aside, and the step stays the step."""
    frame = frame_of(step=7, scalars={"step": 3.0, "spans_at": 4.0})
    assert json.loads(line_of(frame))["step"] == 7
    assert read_back(tmp_path, frame)[0].scalars == {"step": 3.0, "spans_at": 4.0}


def test_a_step_without_spans_has_the_time_of_the_model_itself() -> None:
    """Where nothing else was measured, the model's own forward is a phase of the record."""
    frame = frame_of((), step_ms=10, model_ns={Phase.FORWARD: 4_000_000})
    assert json.loads(line_of(frame))["phases_ms"] == {"forward": 4.0, "other": 6.0}


def test_more_layouts_than_are_remembered_still_read_back(tmp_path: Path) -> None:
    """A run whose steps all differ keeps neither side growing, and every frame is whole."""
    layouts = [layout_of(((f"n{i}", "forward", -1, 1),)) for i in range(LAYOUTS + 3)]
    order = (*range(LAYOUTS + 3), 0, LAYOUTS + 2)
    frames = [frame_of(((f"n{i}", "forward", -1, 1),), layout=layouts[i]) for i in order]
    assert all(same(back, frame) for back, frame in zip(read_back(tmp_path, *frames), frames, strict=True))
