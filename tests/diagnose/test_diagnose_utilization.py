"""NVML's utilisation decides whether an empty queue cost any time."""

from dataclasses import replace

import pytest
from evidence_builders import evidence_of, finding_of

from autoprof.base.summary import Finding, MetricStats
from autoprof.diagnose import diagnose

STEP = {"forward": 40.0, "backward": 50.0}


def judged(use: float | None) -> Finding:
    """Judge a run whose queue was empty for most of the step, the device busy for so much of the time."""
    rows = evidence_of(STEP, repeat=20).summary.rows
    gauges = {} if use is None else {"gpu_utilization": MetricStats(use, use, use, use, 60)}
    bound = tuple(replace(row, host_bound=0.8) for row in rows)
    seen = evidence_of(STEP, repeat=20, clock="device", rows=bound, metrics=gauges)
    return finding_of(diagnose(seen), "launch-bound")


@pytest.mark.parametrize("use", [0.1, 0.6, 0.94])
def test_an_idle_device_confirms_the_finding(use: float) -> None:
    """The figure is part of the evidence."""
    found = judged(use)
    assert found.severity in ("warning", "critical")
    assert f"NVML saw the device busy for {100 * use:.1f} % of the time" in found.why
    assert found.evidence["gpu_utilization"] == use


def test_a_device_that_was_busy_throughout_makes_it_inconclusive() -> None:
    """The queue ran short, and nothing was lost by it."""
    found = judged(0.98)
    assert found.severity == "info"
    assert "the device busy 98.0 %" in found.evidence["missing"]


def test_a_few_long_steps_make_no_share_above_the_whole_step() -> None:
    """The mean of the time is compared with the mean step, not with the median step."""
    steps = [STEP] * 9 + [{"step": 9000.0, "forward": 4000.0, "backward": 5000.0}]
    rows = evidence_of(*steps, repeat=4).summary.rows
    bound = tuple(replace(row, host_bound=0.9) for row in rows)
    found = finding_of(diagnose(evidence_of(*steps, repeat=4, clock="device", rows=bound)), "launch-bound")
    assert found.evidence["share"] <= 1


def test_the_row_with_nearly_all_of_the_empty_queue_is_named() -> None:
    """A forward that sleeps on the host is the place to look, not the whole model."""
    rows = evidence_of(STEP, repeat=20).summary.rows
    bound = tuple(replace(row, host_bound=1.0 if row.phase == "forward" else 0.0) for row in rows)
    found = finding_of(diagnose(evidence_of(STEP, repeat=20, clock="device", rows=bound)), "launch-bound")
    (forward,) = (row for row in rows if row.phase == "forward")
    assert found.name == forward.name
    assert f"nearly all of it in the forward of {forward.name}" in found.why
