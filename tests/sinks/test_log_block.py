"""The sections of many steps at once have the text of single ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_frames import frames_of, layouts
from sink_builders import Clock, frame_of, layout_of

from autoprof._reports import name_averages
from autoprof._reports.log import render_step
from autoprof._reports.log_block import LEAST_STEPS, LINES, MAX_STEPS, LogBlock
from autoprof._reports.name_averages import NameAverages
from autoprof._storage.runs import RunFolder
from autoprof.frame import LOGGED_LANE, Layout, Phase, StepFrame
from autoprof.sinks._base import RunInfo
from autoprof.sinks.log import LogOptions, LogSink


def one_by_one(frames: Sequence[StepFrame], limit_ns: int) -> str:
    """Render each frame by itself."""
    averages = NameAverages()
    return "".join(render_step(frame, averages, limit_ns) for frame in frames)


def together(frames: Sequence[StepFrame], limit_ns: int) -> str:
    """Render the frames as the sink does: as many at once as a block takes."""
    block, texts = LogBlock(NameAverages()), []
    for frame in frames:
        if not block.takes(frame, limit_ns):
            texts.append(block.render())
        if block.add(frame, limit_ns):
            texts.append(block.render())
    return "".join([*texts, block.render()])


def a_model(blocks: int = 12, layers: int = 4) -> Layout:
    """A model of blocks of layers: the forward of each, then the backward, beside an optimizer and a header."""
    names, phases, parents = ["model"], [Phase.FORWARD], [-1]
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        if phase is Phase.BACKWARD:
            names, phases, parents = [*names, "model"], [*phases, phase], [*parents, -1]
        above = len(names) - 1
        for block in range(blocks):
            names, phases, parents = [*names, f"model/时{block}"], [*phases, phase], [*parents, above]
            inside = len(names) - 1
            for layer in range(layers):
                names.append(f"model/时{block}/layer{layer}")
                phases, parents = [*phases, phase], [*parents, inside]
    names, phases, parents = [*names, "Loss/VGG", "step"], [*phases, Phase.USER, Phase.OPTIMIZER], [*parents, -1, -1]
    lanes = (0,) * len(names)
    return Layout(tuple(names), (None,) * len(names), tuple(phases), tuple(parents), (1,) * len(names), lanes)


def steps_of(layout: Layout, count: int, leaf_ns: int, seed: int = 0) -> list[StepFrame]:
    """Steps in which a leaf takes up to ``leaf_ns``, and a parent a little more than all that is in it."""
    draw, frames = np.random.default_rng(seed), []
    for step in range(1, count + 1):
        host = draw.integers(0, leaf_ns, len(layout))
        host[::7] = host[::7] // 500 * 500  # in the middle between two texts
        for span in range(len(layout) - 1, -1, -1):
            if layout.parents[span] >= 0:
                host[layout.parents[span]] += host[span]
        roots = int(host[[parent < 0 for parent in layout.parents]].sum())
        memory = {"rss_bytes": 1 << 30}
        frames.append(
            StepFrame(step, step, roots + 12_345, layout, np.zeros_like(host), host, scalars={"a": 1}, memory=memory)
        )
    return frames


@pytest.mark.parametrize("leaf_ns", [3, 1_500, 30_000, 40_000_000, 9_000_000_000])
@pytest.mark.parametrize("limit_ns", [0, 700])
def test_a_block_of_steps_has_the_text_of_its_steps(leaf_ns: int, limit_ns: int) -> None:
    """Times of nanoseconds and of seconds, times in the middle between two texts, and times below the clock's limit."""
    frames = steps_of(a_model(), 2 * LEAST_STEPS + 1, leaf_ns)
    assert together(frames, limit_ns) == one_by_one(frames, limit_ns)


@settings(max_examples=20)
@given(st.data(), layouts(), st.sampled_from([0, 100, 10**7]))
def test_a_block_of_any_steps_has_the_text_of_its_steps(data: st.DataObject, layout: Layout, limit_ns: int) -> None:
    """Other threads, logged durations, device times, and names inside themselves."""
    frames = [data.draw(frames_of(layout, step, step)) for step in range(LEAST_STEPS + 2)]
    assert together(frames, limit_ns) == one_by_one(frames, limit_ns)


def test_a_name_on_another_thread_and_a_logged_one_have_averages_of_their_own() -> None:
    """One text has a line of each: 1 ms on the thread, 3 ms logged."""
    layout = Layout(("A", "A"), (None, None), (Phase.FORWARD,) * 2, (-1, -1), (1, 1), (1, LOGGED_LANE))
    host = np.array([1_000_000, 3_000_000])
    frames = [StepFrame(step, step, 5_000_000, layout, np.zeros_like(host), host) for step in range(LEAST_STEPS)]
    text = one_by_one(frames, 0)
    assert text.count("[avg:      1.000ms]") == text.count("[avg:      3.000ms]") == LEAST_STEPS
    assert together(frames, 0) == text


def test_a_step_too_long_for_the_columns_is_written_whole() -> None:
    """A step of 20 minutes beside short ones moves its own numbers to the right, as it does alone."""
    layout = layout_of((("A", "forward", -1, 1.0),))
    frames = [frame_of((("A", "forward", -1, ms),), layout=layout, step_ms=ms) for ms in (1, 1_200_000, 2, 3, 4)]
    text = together(frames, 0)
    assert "1200000.000ms (100.0%)" in text
    assert text == one_by_one(frames, 0)


def test_a_block_of_device_times_marks_the_host_bound() -> None:
    """The mark of a name that waits for the host is that of a single step."""
    layout = a_model(2, 2)
    frames = [
        StepFrame.of(
            **{
                **vars(frame),
                "device_duration_ns": frame.duration_ns,
                "device_ns": frame.host_ns,
                "device_start_ns": frame.start_ns,
                "host_bound_ns": frame.host_ns * (np.arange(len(layout)) % 2),
            }
        )
        for frame in steps_of(layout, LEAST_STEPS, 30_000)
    ]
    text = together(frames, 0)
    assert " host-bound\n" in text
    assert text == one_by_one(frames, 0)


def test_steps_with_other_phases_of_the_model_itself_have_their_own_shares() -> None:
    """The shares are those of each step, in its own order of phases."""
    rows = (("A", "forward", -1, 10.0),)
    layout = layout_of(rows)
    backward_first = {Phase.BACKWARD: 20_000_000, Phase.OPTIMIZER: 30_000_000}
    optimizer_first = {Phase.OPTIMIZER: 40_000_000, Phase.BACKWARD: 10_000_000}
    frames = [
        frame_of(rows, layout=layout, step=step, step_ms=100, model_ns=model_ns)
        for model_ns in (backward_first, optimizer_first, {})
        for step in range(LEAST_STEPS)
    ]
    text = together(frames, 0)
    assert text.count("forward 10.0 % backward 20.0 % optimizer 30.0 % other 40.0 %") == LEAST_STEPS
    assert text.count("forward 10.0 % optimizer 40.0 % backward 10.0 % other 40.0 %") == LEAST_STEPS
    assert text == one_by_one(frames, 0)


def test_steps_without_spans_have_the_share_of_the_model_itself() -> None:
    """Where nothing else was measured, a section has no tree, and the phases are shown."""
    layout = layout_of(())
    frames = [
        frame_of((), layout=layout, step=step, step_ms=10, model_ns={Phase.FORWARD: 4_000_000})
        for step in range(LEAST_STEPS)
    ]
    text = together(frames, 0)
    assert text.count("forward 40.0 % other 60.0 %") == LEAST_STEPS
    assert text == one_by_one(frames, 0)


def test_names_beyond_the_limit_have_no_average_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name for which no average is kept has none, in a block as alone."""
    monkeypatch.setattr(name_averages, "MAX_PLACES", 2)
    rows = tuple((name, "forward", -1, 10) for name in "ABC")
    layout = layout_of(rows)
    frames = [frame_of(rows, layout=layout, step=step) for step in range(1, LEAST_STEPS + 2)]
    text = together(frames, 0)
    assert text.count("C                                       :     10.000ms (  1.0%) fwd\n") == len(frames)
    assert text == one_by_one(frames, 0)


def test_a_block_ends_where_the_layout_or_the_warm_up_changes(tmp_path: Path, clock: Clock) -> None:
    """The file has the sections of all steps in their order, whatever they have in common."""
    rows, logged = (("A", "forward", -1, 10), ("B", "backward", -1, 20)), (("C", "user", -1, 5),)
    one, other = layout_of(rows), layout_of(logged, (LOGGED_LANE,))
    frames = [
        *(frame_of(rows, layout=one, step=step, warmup=step < 3) for step in range(1, 9)),
        *(frame_of(logged, layout=other, step=step) for step in range(9, 14)),
        *(frame_of(rows, layout=one, step=step) for step in range(14, 20)),
    ]
    folder = RunFolder.create(tmp_path)
    sink = LogSink(LogOptions(), RunInfo(folder, 0, sys.stdout, clock))
    for frame in frames:
        sink.write(frame)
    path = folder.rank_path / "timing.log"
    assert path.stat().st_size == 0, "nothing is written before it is due"
    clock.now += 6.0
    frames.append(frame_of(rows, layout=one, step=20))
    sink.write(frames[-1])
    assert path.read_text(encoding="utf-8") == one_by_one(frames, 0), "and then everything"


@pytest.mark.parametrize(
    ("layout", "most"),
    [(layout_of((("A", "forward", -1, 1.0),)), MAX_STEPS), (a_model(), LINES // 64), (a_model(200, 10), LEAST_STEPS)],
    ids=["one module", "61 modules", "2,201 modules"],
)
def test_a_block_is_bounded(layout: Layout, most: int) -> None:
    """Steps do not pile up: a block is full after so many lines."""
    block = LogBlock(NameAverages())
    full = [block.add(frame, 0) for frame in steps_of(layout, most, 1000)]
    assert full == [False] * (most - 1) + [True]
