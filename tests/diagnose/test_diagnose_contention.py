"""What a machine that others keep busy may explain, and what it may not."""

import random
from typing import Any

import pytest
from evidence_builders import evidence_of, found

from autoprof.diagnose import Environment, RunFacts, diagnose
from autoprof.summary import MetricStats, Summary


def on_busy_machine(
    step: dict[str, float], waiting: float, *more: dict[str, float], repeat: int = 20, own: float = 0.6, **facts: Any
) -> Summary:
    """Diagnose 20 such steps, with ``more`` after each, on processors that others hold for this share of the time."""
    values = {"host_cpu_cores": own, "host_cpu_busy": 1.0, "host_cpu_waiting": waiting}
    metrics = {name: MetricStats(value, value, value, value, 5) for name, value in values.items()}
    run = RunFacts(environment=Environment(machine_cores=2), **facts)
    return diagnose(evidence_of(step, *more, repeat=repeat, facts=run, metrics=metrics))


@pytest.mark.parametrize(
    ("data_ms", "rules"),
    [(60, ["data-wait", "busy-machine"]), (25, ["busy-machine", "data-wait"]), (15, ["busy-machine"])],
)
def test_the_larger_cause_comes_first(data_ms: float, rules: list[str]) -> None:
    """The wait for a processor takes 30 % of the time; 15 % of data, near its bound of 10 %, may be that wait."""
    assert found(on_busy_machine({"data": data_ms, "forward": 100 - data_ms}, 0.3)) == rules


@pytest.mark.parametrize(("waiting", "named"), [(0.4, True), (0.6, False)])
def test_time_in_no_span_may_be_the_wait_for_a_processor(waiting: float, named: bool) -> None:
    """Nearly half of a step is in no span, of a thread that waits for most of its time: it may wait there."""
    assert ("unattributed" in found(on_busy_machine({"forward": 55, "step": 100}, waiting))) is named


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


USUAL = {"data": 5.0, "forward": 45.0, "backward": 45.0, "optimizer": 5.0}
LONG = {"data": 5.0, "forward": 345.0, "backward": 345.0, "optimizer": 300.0, "step": 1000.0}
"""A step of which every span is longer, as by the wait for a processor."""


def test_long_steps_without_a_rhythm_are_the_busy_machines() -> None:
    """A fifth of the steps, at random."""
    chance = random.Random(1)
    first, *more = [LONG if chance.random() < 0.2 else USUAL for _ in range(100)]
    assert found(on_busy_machine(first, 0.4, *more, repeat=1)) == ["busy-machine"]


def test_a_tenth_of_the_machine_that_others_hold_is_enough() -> None:
    """They come and go: for a part of the run they hold both processors, on the mean 0.25 of the two."""
    chance = random.Random(2)
    slow = {**USUAL, "forward": 900.0, "step": 1000.0}
    first, *more = [slow if chance.random() < 0.1 else USUAL for _ in range(120)]
    assert found(on_busy_machine(first, 0.15, *more, repeat=1, own=1.75)) == ["busy-machine"]
    assert found(on_busy_machine(first, 0.02, *more, repeat=1, own=1.75)) == ["hot-module"]


def test_long_steps_with_a_rhythm_are_the_programs() -> None:
    """No other process comes every fifth step, whatever takes the time then."""
    assert "jitter" in found(on_busy_machine(USUAL, 0.4, USUAL, USUAL, USUAL, LONG))
    data = {**USUAL, "data": 900.0, "step": 1000.0}
    assert found(on_busy_machine(USUAL, 0.4, USUAL, USUAL, USUAL, data)) == ["data-wait", "busy-machine"]


def test_long_steps_that_begin_or_end_are_the_programs() -> None:
    """A cold cache: the first fifth of the steps waits for data, far beyond twice the bound."""
    cold = {**USUAL, "data": 305.0, "step": 400.0}
    steps = [cold] * 20 + [USUAL] * 80
    assert found(on_busy_machine(steps[0], 0.4, *steps[1:], repeat=1)) == ["data-wait", "busy-machine"]
