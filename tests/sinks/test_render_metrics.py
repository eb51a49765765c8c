"""The means of several steps as numbers with names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from random_frames import runs
from sink_builders import MS, frame_of, summary_of

from autoprof.frame import Phase, StepFrame
from autoprof.sinks._metrics_sink import MeansOfSteps


def taken(frames: list[StepFrame]):
    stretch = MeansOfSteps()
    for frame in frames:
        stretch.add(frame)
    return stretch.take()


def test_without_a_step_there_is_nothing() -> None:
    """A value that was not measured is absent, not zero."""
    assert MeansOfSteps().take() is None


@given(runs())
def test_the_numbers_are_those_of_the_summary(frames: list[StepFrame]) -> None:
    """Steps, phases and rows of several steps equal the statistics of the same frames."""
    frames = [StepFrame.of(**{**vars(frame), "warmup": False}) for frame in frames]
    metrics, summary = taken(frames), summary_of(frames)
    if not summary.steps:
        assert metrics is None
        return
    assert (metrics.steps, metrics.step_ns) == (summary.steps, summary.total_step_ns)
    assert {phase: ns for phase, ns in metrics.phases.items() if ns} == {
        phase: ns for phase, ns in summary.phases.items() if ns
    }
    rows: dict[tuple[str, Phase], int] = {}
    for row in summary.rows:
        rows[row.name, row.phase] = rows.get((row.name, row.phase), 0) + row.total_ns
    assert {key: ns for key, ns in metrics.rows.items() if ns} == {key: ns for key, ns in rows.items() if ns}


def test_names_say_what_the_numbers_are() -> None:
    """Times are milliseconds a step, throughput is of the stretch, scalars are passed through as they are."""
    frames = [
        frame_of(step=1, scalars={"samples": 4.0, "loss": 1.0, "gpu_util": 93.0}, memory={"rss_bytes": 5}),
        frame_of(step=2, step_ms=3000, scalars={"loss": 0.5}),
    ]
    named = taken(frames).named(2)
    assert named.pop("autoprof/overhead") == pytest.approx(6 / 4000)
    assert named == {
        "autoprof/step_ms": 2000.0,
        **{f"autoprof/phase_ms/{phase}": pytest.approx(ms) for phase, ms in {
            "forward": 280, "backward": 440, "recompute": 100, "user": 20, "optimizer": 60, "data": 40, "other": 1060,
        }.items()},
        "autoprof/ms/VRT/backward": 540.0,
        "autoprof/ms/VRT/Stage8/backward": 350.0,
        "autoprof/throughput": 4.0,
        "autoprof/memory/rss_bytes": 5.0,
        "autoprof/scalar/samples": 4.0, "autoprof/scalar/loss": 0.5, "autoprof/scalar/gpu_util": 93.0,
    }  # fmt: skip


def test_samples_of_several_steps_are_divided_by_their_time() -> None:
    """A program that logs each third step; the first log is left out, for it covers a step of the warm-up."""
    stretch = MeansOfSteps()
    stretch.skip(replace(frame_of(step=1), warmup=True))
    for step in (2, 3, 4):
        stretch.add(frame_of(step=step, scalars={"samples": 6.0} if step == 3 else {}))
    metrics = stretch.take()
    assert metrics is not None
    assert metrics.throughput is None
    for step in (5, 6):
        stretch.add(frame_of(step=step, scalars={"samples": 6.0} if step == 6 else {}))
    metrics = stretch.take()
    assert metrics is not None
    assert metrics.throughput == 2.0


def test_each_stretch_begins_anew() -> None:
    """The second report is of the steps since the first; counts are of the run."""
    stretch = MeansOfSteps()
    stretch.add(frame_of(step=1, step_ms=1000, scalars={"loss": 1.0}))
    stretch.take()
    stretch.add(frame_of(step=2, step_ms=2000))
    metrics = stretch.take()
    assert metrics is not None
    assert (metrics.steps, metrics.step_ns, metrics.recorded, metrics.scalars) == (1, 2000 * MS, 2, {})
