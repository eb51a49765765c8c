"""Statistics: nothing counted twice, quantiles within 1 %, mergeable, bounded, and the phases make the step."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoprof import Finding, Phase, Row, Span, StepFrame, Summary
from autoprof.base.frame import Gap
from autoprof.base.stats import Aggregate
from autoprof.base.stats.aggregate import OTHER_TARGETS
from autoprof.base.stats.cut_statistics import MAX_ROWS
from autoprof.testing import make_frame

MS = 1_000_000


def a_span(
    name: str, ms: float, parent: int | None = None, start: float = 0, phase: Phase = Phase.FORWARD, **more: Any
) -> Span:
    """Make a span in milliseconds."""
    return Span(name, name.lower(), phase, parent, round(start * MS), round(ms * MS), **more)


def collect(frames: list[StepFrame]) -> Aggregate:
    """Fold frames into an aggregate."""
    aggregate = Aggregate()
    for frame in frames:
        aggregate.add(frame)
    return aggregate


def rows_of(aggregate: Aggregate) -> dict[tuple[str, str], Row]:
    """Return the rows by name and phase."""
    return {(row.name, str(row.phase)): row for row in aggregate.summary().rows}


def one_span(ns: int, step: int = 1, **more: Any) -> StepFrame:
    """Make a frame of a single span."""
    return make_frame([Span("a", None, Phase.FORWARD, None, 0, ns)], step=step, **more)


def test_a_span_inside_one_of_its_own_row_is_counted_once() -> None:
    """The seed added 1805.28 + 1799.99 + 5.26 to twice the time that passed."""
    frame = make_frame(
        [a_span("VRT", 1805.28), a_span("VRT", 1799.99, parent=0), a_span("VRT", 5.26, parent=0, start=1800)]
    )
    row = rows_of(collect([frame]))["VRT", "forward"]
    assert row.total_ns == 1_805_280_000
    assert row.calls == 3
    assert row.self_ns == 1_805_280_000
    assert row.share == 1.0


def test_phases_sum_to_the_total_step_time_exactly() -> None:
    """Self times by phase, and other for the rest, over blocks and layouts."""
    frames = [
        make_frame(
            [a_span("A", 3.1 + i, phase=Phase.BACKWARD), a_span("A", 1.7, parent=0, phase=Phase.RECOMPUTE)][
                : 1 + i % 2
            ],
            duration_ns=10 * MS + 7 * i,
            step=i,
        )
        for i in range(150)
    ]
    summary = collect(frames).summary()
    assert sum(summary.phases.values()) == summary.total_step_ns == sum(frame.duration_ns for frame in frames)
    assert summary.phases[Phase.RECOMPUTE] == 75 * 1_700_000


@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=300))
@settings(max_examples=60, deadline=None)
def test_quantiles_are_within_one_percent(values: list[int]) -> None:
    """Against the exact order statistic."""
    aggregate = collect([one_span(ns, step=i) for i, ns in enumerate(values)])
    row = rows_of(aggregate)["a", "forward"]
    for q, found in ((0.5, row.p50_ns), (0.95, row.p95_ns)):
        exact = int(np.quantile(values, q, method="inverted_cdf"))
        assert abs(found - exact) <= 0.01 * exact + 1
        assert min(values) <= found <= max(values)


def test_no_steps_make_an_empty_summary() -> None:
    """Nothing is divided by nothing."""
    summary = Aggregate().summary()
    assert summary.steps == 0
    assert summary.rows == ()
    assert summary.throughput is None
    assert summary.step_min_ns == summary.step_max_ns == 0
    assert sum(summary.phases.values()) == 0


def test_rows_are_bounded_and_further_ones_are_counted() -> None:
    """Names made up anew each step cannot fill the memory; the phases still add up."""
    steps = MAX_ROWS // 500 + 2
    frames = [make_frame([a_span(f"name {i} {j}", 1, start=j) for j in range(500)], step=i) for i in range(steps)]
    summary = collect(frames).summary()
    assert len(summary.rows) <= MAX_ROWS
    assert sum(summary.dropped.values()) == 500 * steps - len(summary.rows)
    assert summary.phases == {Phase.FORWARD: 500 * steps * MS, Phase.OTHER: 0}


def test_device_time_counts_where_there_is_one() -> None:
    """The length of the step is that of the device as well."""
    frame = make_frame(
        [a_span("A", 1, device_start_ns=0, device_ns=9 * MS, host_bound_ns=0)],
        duration_ns=2 * MS,
        device_duration_ns=10 * MS,
    )
    summary = collect([frame]).summary()
    (row,) = summary.rows
    assert (summary.clock, row.total_ns, row.share) == ("device", 9 * MS, 0.9)
    assert summary.total_step_ns == 10 * MS


def test_the_mean_of_the_run_has_every_step_after_the_warm_up() -> None:
    """Thirty slow steps that were recorded, and the fast ones that were not; settling steps are training time."""
    aggregate = collect([one_span(5, duration_ns=90 * MS, warmup=True)] * 3)
    for frame in [one_span(5, duration_ns=20 * MS)] * 30:
        aggregate.add(frame)
    aggregate.add(one_span(5, duration_ns=8 * MS, warmup=True, gap_steps=60, gap_ns=360 * MS))
    aggregate.add(one_span(5, duration_ns=8 * MS, warmup=True))
    aggregate.add(one_span(5, duration_ns=6 * MS))
    aggregate.add(one_span(5, duration_ns=500 * MS, warmup=True))
    summary = aggregate.summary(gap=Gap(10, 60 * MS))
    assert (summary.run_steps, summary.run_ns) == (103, (600 + 360 + 16 + 6 + 60) * MS)
    assert summary.run_mean_ns == summary.run_ns / 103


def test_throughput_is_samples_per_second_of_the_steps_that_logged_them() -> None:
    """None where nothing was logged: it is not zero."""
    frames = [one_span(5, duration_ns=500 * MS, scalars={"samples": 8.0}), one_span(5, duration_ns=10**10)]
    assert collect(frames).summary().throughput == 16.0
    assert collect([one_span(5)]).summary().throughput is None


def test_autoprofs_own_work_is_part_of_the_time_that_samples_take() -> None:
    """In the settling steps after a gap, however long it is, and at both ends of the gap."""
    settling = one_span(
        5, step=3, duration_ns=200 * MS, overhead_ns=150 * MS, warmup=True, gap_steps=1, scalars={"samples": 8.0},
        gap_ns=100 * MS, gap_overhead_ns=100 * MS, gap_scalars={"samples": 8.0},
    )  # fmt: skip
    first, last = (one_span(5, step, duration_ns=100 * MS, scalars={"samples": 8.0}) for step in (1, 4))
    summary = collect([first, settling, last]).summary()
    assert summary.throughput == 4 * 8 / 0.6
    assert (summary.run_steps, summary.run_ns, summary.unsampled_ns) == (4, 600 * MS, 100 * MS)
    assert summary.overhead == 150 / 600


def test_a_summary_survives_json() -> None:
    """``to_dict`` gives plain JSON types, ``from_dict`` the same summary."""
    more = {"overhead_ns": 5, "dropped": 1, "scalars": {"samples": 4.0}}
    frames = [one_span(7 * step, step, duration_ns=10 * step, warmup=step < 3, **more) for step in range(100)]
    finding = Finding("hot-module", "warning", "why", "next", "a", Phase.FORWARD, 0, 5, {"ms": 3})
    summary = replace(collect(frames).summary(notes=("note",)), findings=(finding,), skipped={"x": 1})
    text = json.dumps(summary.to_dict(), allow_nan=False)
    assert Summary.from_dict(json.loads(text)) == summary


def test_statistics_of_many_sets_of_targets_are_bounded() -> None:
    """Those with the fewest steps are dropped, and their steps stay counted."""
    frames = [make_frame([a_span("A", 1)], step=i, cut=0) for i in range(3)]
    frames += [make_frame([a_span(f"B{i}", 1)], step=3 + i, cut=1 + i) for i in range(20)]
    summary = collect(frames).summary()
    assert ([row.name for row in summary.rows], summary.steps, summary.skipped) == (["A"], 3, {OTHER_TARGETS: 20})
