"""What a machine that others keep busy may explain, and what it may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_builders import MS, evidence_of, finding_of, found

from autoprof._stats import Aggregate
from autoprof.diagnose import Environment, EvidenceCollector, RunFacts, diagnose
from autoprof.diagnose._contention import Contention
from autoprof.frame import Phase, Span
from autoprof.summary import MetricStats, Summary
from autoprof.testing import make_frame


def on_busy_machine(step: dict[str, float], waiting: float, **facts: Any) -> Summary:
    """Diagnose 20 such steps on two processors that others hold; the thread waits this share of the time."""
    values = {"host_cpu_cores": 0.6, "host_cpu_busy": 1.0, "host_cpu_waiting": waiting}
    metrics = {name: MetricStats(value, value, value, value, 5) for name, value in values.items()}
    run = RunFacts(environment=Environment(machine_cores=2), **facts)
    return diagnose(evidence_of(step, repeat=20, facts=run, metrics=metrics))


@pytest.mark.parametrize(("data_ms", "first"), [(60, "data-wait"), (25, "data-wait"), (15, "busy-machine")])
def test_a_share_of_twice_its_bound_comes_before_the_busy_machine(data_ms: float, first: str) -> None:
    """The bound is 10 %; 15 % may be the wait for a processor, which takes 30 % of the time."""
    summary = on_busy_machine({"data": data_ms, "forward": 100 - data_ms}, 0.3)
    assert found(summary)[0] == first
    assert found(summary)[-1] == "busy-machine"


def test_what_the_wait_for_a_processor_explains_is_an_abstention() -> None:
    """It says what it lacks."""
    finding = finding_of(on_busy_machine({"data": 15, "forward": 85}, 0.3), "data-wait")
    assert finding is not None
    assert finding.severity == "info"
    assert "quiet machine" in finding.why


def test_a_short_wait_for_a_processor_explains_only_a_short_time() -> None:
    """29 % of the step are less than twice the bound of 15 %, but above it without the wait of 12 %."""
    assert found(on_busy_machine({"optimizer": 29, "forward": 71}, 0.12)) == ["optimizer", "busy-machine"]


@pytest.mark.parametrize(
    ("share_low", "blocked", "still", "explained"),
    [
        (0.22, 0.0, 0.0, False),  # a program that computes: all of it waits for a processor alike
        (0.18, 0.0, 0.0, True),  # too near to its bound
        (0.22, 0.4, 0.0, True),  # much of the run is blocked, so what computes is longer only because of the wait
        (0.22, 0.4, 0.8, False),  # but here the phase is blocked itself
        (0.22, None, 0.0, True),  # runs of older versions
    ],
)
def test_a_wait_for_a_processor_makes_only_computing_longer(
    share_low: float, blocked: float | None, still: float, explained: bool
) -> None:
    """The thread waits for a processor for 40 % of the time; the bound is 15 %."""
    used = Contention(0.4, 0.5, 0.0, 1.5, 2, 1.0, blocked)
    assert used.explains({"share_low": share_low, "bound": 0.15, "blocked": still}) is explained


@pytest.mark.parametrize(("backward_ms", "named"), [(90, True), (80, False)])
def test_a_backward_of_twice_its_bound_is_found_on_any_machine(backward_ms: float, named: bool) -> None:
    """Forward and backward wait alike: 9 x cannot be the usual 2 x, but 4 x may be."""
    step = {"forward": 100 - backward_ms, "backward": backward_ms}
    assert ("backward-ratio" in found(on_busy_machine(step, 0.4))) is named


def test_recompute_is_found_on_any_machine() -> None:
    """That forwards run twice is no matter of time."""
    summary = on_busy_machine({"forward": 60, "recompute": 8, "backward": 32}, 0.4)
    assert found(summary) == ["recompute", "busy-machine"]


def test_debugging_switches_come_before_the_busy_machine() -> None:
    """They are on, whatever else runs."""
    summary = on_busy_machine({"forward": 100}, 0.4, debug={"anomaly detection": 1.0})
    assert found(summary) == ["debug-mode", "busy-machine"]


def test_a_forward_that_waits_is_found_without_counted_flops() -> None:
    """The model's own code takes 64 % of the step, and the process a tenth of a processor."""
    found_by = finding_of(run_of_model(own_cores=0.1), "hot-module")
    assert found_by is not None
    assert "computes nothing" in found_by.why
    assert finding_of(run_of_model(own_cores=0.9), "hot-module") is None


def test_a_forward_that_waits_for_a_processor_or_for_itself_is_an_abstention() -> None:
    """The model takes 64 % of the step by itself, 60 % may be the wait for a processor that others hold."""
    finding = finding_of(run_of_model(own_cores=0.1, waiting=0.6), "hot-module")
    assert finding is not None
    assert "quiet machine" in finding.why


def run_of_model(own_cores: float, waiting: float = 0.0) -> Summary:
    """Diagnose a model of 80 ms that holds a child of 16 ms, beside an optimizer of 10 ms."""
    spans = [
        Span("Model", "", Phase.FORWARD, None, 0, 80 * MS),
        Span("body", "body", Phase.FORWARD, 0, 60 * MS, 16 * MS),
        Span("Optimizer", None, Phase.OPTIMIZER, None, 80 * MS, 10 * MS),
    ]
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 21):
        frame = make_frame(spans, step=number, duration_ns=100 * MS)
        aggregate.add(frame)
        collector.add(frame)
    values = {"host_cpu_cores": own_cores, "host_cpu_busy": 0.5, "host_cpu_waiting": waiting}
    metrics = {name: MetricStats(value, value, value, value, 5) for name, value in values.items()}
    facts = RunFacts(environment=Environment(machine_cores=2))
    return diagnose(collector.evidence(replace(aggregate.summary(), metrics=metrics), facts))
