"""What a machine that others keep busy may explain, and what it may not."""

from typing import Any

import pytest
from evidence_builders import evidence_of, found

from autoprof.diagnose import Environment, RunFacts, diagnose
from autoprof.summary import MetricStats, Summary


def on_busy_machine(step: dict[str, float], waiting: float, *more: dict[str, float], **facts: Any) -> Summary:
    """Diagnose 20 such steps, with ``more`` after each, on processors that others hold for this share of the time."""
    values = {"host_cpu_cores": 0.6, "host_cpu_busy": 1.0, "host_cpu_waiting": waiting}
    metrics = {name: MetricStats(value, value, value, value, 5) for name, value in values.items()}
    run = RunFacts(environment=Environment(machine_cores=2), **facts)
    return diagnose(evidence_of(step, *more, repeat=20, facts=run, metrics=metrics))


@pytest.mark.parametrize(
    ("data_ms", "rules"),
    [(60, ["data-wait", "busy-machine"]), (25, ["busy-machine", "data-wait"]), (15, ["busy-machine"])],
)
def test_the_larger_cause_comes_first(data_ms: float, rules: list[str]) -> None:
    """The wait for a processor takes 30 % of the time; 15 % of data, near its bound of 10 %, may be that wait."""
    assert found(on_busy_machine({"data": data_ms, "forward": 100 - data_ms}, 0.3)) == rules


@pytest.mark.parametrize(("backward_ms", "named"), [(90, True), (80, False)])
def test_a_backward_of_twice_its_bound_is_found_on_any_machine(backward_ms: float, named: bool) -> None:
    """Forward and backward wait alike: 9 x cannot be the usual 2 x, but 4 x may be."""
    step = {"forward": 100 - backward_ms, "backward": backward_ms}
    assert ("backward-ratio" in found(on_busy_machine(step, 0.4))) is named


def test_recompute_is_found_on_any_machine() -> None:
    """That forwards run twice is no matter of time."""
    summary = on_busy_machine({"forward": 60, "recompute": 8, "backward": 32}, 0.4)
    assert found(summary) == ["busy-machine", "recompute"]


def test_debugging_switches_come_before_the_busy_machine() -> None:
    """They are on, whatever else runs."""
    summary = on_busy_machine({"forward": 100}, 0.4, debug={"anomaly detection": 1.0})
    assert found(summary) == ["debug-mode", "busy-machine"]


@pytest.mark.parametrize(
    ("long", "named"),
    [({"data": 5, "forward": 345, "backward": 345, "optimizer": 300}, False), ({"data": 900, "forward": 95}, True)],
    ids=["each span is longer", "one span is longer"],
)
def test_long_steps_without_a_cause_are_the_busy_machines(long: dict[str, float], named: bool) -> None:
    """The wait for a processor makes any span long; a span that alone makes steps ten times as long is a cause."""
    usual = {"data": 5.0, "forward": 45.0, "backward": 45.0, "optimizer": 5.0}
    summary = on_busy_machine(usual, 0.4, usual, usual, usual, {**usual, **long, "step": 1000.0})
    assert ("data-wait" in found(summary)) is named
    assert "jitter" not in found(summary)
    assert "busy-machine" in found(summary)
