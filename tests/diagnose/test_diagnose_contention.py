"""What a machine that others keep busy may explain, and what it may not."""

import random
from typing import Any

import pytest
from evidence_builders import MS, evidence_of, found

from autoprof.base.summary import MetricStats, Summary
from autoprof.diagnose import Environment, RunFacts, StackTable, diagnose
from autoprof.diagnose._calls import CallSite
from autoprof.diagnose._stacks import UNATTRIBUTED


def on_busy_machine(
    step: dict[str, float],
    waiting: float,
    *more: dict[str, float],
    repeat: int = 20,
    own: float = 0.6,
    steady: bool = True,
    **facts: Any,
) -> Summary:
    """Diagnose 20 such steps, with ``more`` after each, on processors that others hold for this share of the time."""
    values = {"host_cpu_cores": own, "host_cpu_busy": 1.0, "host_cpu_waiting": waiting}
    metrics = {name: MetricStats(value, value if steady else 0.0, value, value, 5) for name, value in values.items()}
    run = RunFacts(environment=Environment(machine_cores=2), **facts)
    return diagnose(evidence_of(step, *more, repeat=repeat, facts=run, metrics=metrics))


@pytest.mark.parametrize(
    ("data_ms", "rules"),
    [(60, ["data-wait"]), (25, ["data-wait"]), (15, [])],
)
def test_the_programs_cause_is_the_verdict_and_the_machine_a_condition(data_ms: float, rules: list[str]) -> None:
    """15 % of data, near its bound of 10 %, may be the wait for a processor."""
    summary = on_busy_machine({"data": data_ms, "forward": 100 - data_ms}, 0.3)
    assert found(summary) == rules
    (condition,) = summary.conditions
    assert condition.startswith(
        "beside other processes: they kept 1.4 of 2 processors busy, and this one waited 30.0 %"
    )


def test_a_quiet_machine_is_no_condition() -> None:
    """Neither is one whose processors this process uses itself."""
    assert not on_busy_machine({"forward": 100}, 0.02).conditions
    assert not on_busy_machine({"forward": 100}, 0.3, own=1.9).conditions


@pytest.mark.parametrize(("outside_ms", "named"), [(30, True), (20, False)])
def test_time_far_above_its_bound_is_found_however_long_the_thread_waits(outside_ms: float, named: bool) -> None:
    """The wait for a processor is spread over all spans: it adds little to the share of one of them."""
    summary = on_busy_machine({"forward": 100 - outside_ms, "step": 100}, 0.6)
    assert ("unattributed" in found(summary)) is named


def test_the_time_of_one_line_is_found_however_long_the_thread_waits() -> None:
    """It has the same share on a quiet machine: samples that fall into waits are spread over all lines."""
    lines = (
        CallSite("train.py", 41, "<module>", "contrastive", "", 36, 360 * MS),
        CallSite("train.py", 50, "", "", "", 4, MS),
    )
    stacks = {UNATTRIBUTED: StackTable(40, 361 * MS, lines)}
    assert found(on_busy_machine({"forward": 80, "step": 100}, 0.6, stacks=stacks)) == ["unattributed"]


@pytest.mark.parametrize(("backward_ms", "named"), [(90, True), (80, False)])
def test_a_backward_of_twice_its_bound_is_found_on_any_machine(backward_ms: float, named: bool) -> None:
    """Forward and backward wait alike: 9 x cannot be the usual 2 x, but 4 x may be."""
    step = {"forward": 100 - backward_ms, "backward": backward_ms}
    assert ("backward-ratio" in found(on_busy_machine(step, 0.4))) is named


def test_recompute_is_found_on_any_machine() -> None:
    """That forwards run twice is no matter of time."""
    summary = on_busy_machine({"forward": 55, "recompute": 13, "backward": 32}, 0.4)
    assert found(summary) == ["recompute"]


def test_debugging_switches_are_found_on_any_machine() -> None:
    """They are on, whatever else runs."""
    summary = on_busy_machine({"forward": 100}, 0.4, debug={"anomaly detection": 1.0})
    assert found(summary) == ["debug-mode"]


USUAL = {"data": 5.0, "forward": 45.0, "backward": 45.0, "optimizer": 5.0}
LONG = {"data": 5.0, "forward": 345.0, "backward": 345.0, "optimizer": 300.0, "step": 1000.0}
"""A step of which every span is longer, as by the wait for a processor."""


def test_long_steps_without_a_rhythm_are_no_finding() -> None:
    """A fifth of the steps, at random."""
    chance = random.Random(1)
    first, *more = [LONG if chance.random() < 0.2 else USUAL for _ in range(100)]
    assert found(on_busy_machine(first, 0.4, *more, repeat=1)) == []


def test_a_tenth_of_the_machine_that_others_hold_is_enough() -> None:
    """They come and go: for a part of the run they hold both processors, on the mean 0.25 of the two."""
    chance = random.Random(2)
    slow = {**USUAL, "forward": 900.0, "step": 1000.0}
    first, *more = [slow if chance.random() < 0.1 else USUAL for _ in range(120)]
    assert found(on_busy_machine(first, 0.15, *more, repeat=1, own=1.75)) == []
    assert found(on_busy_machine(first, 0.02, *more, repeat=1, own=1.75)) == ["hot-module"]


def test_long_steps_with_a_rhythm_are_the_programs() -> None:
    """No other process comes every fifth step, whatever takes the time then."""
    assert "jitter" in found(on_busy_machine(USUAL, 0.4, USUAL, USUAL, USUAL, LONG))
    data = {**USUAL, "data": 900.0, "step": 1000.0}
    assert found(on_busy_machine(USUAL, 0.4, USUAL, USUAL, USUAL, data)) == ["data-wait"]


def test_long_steps_that_begin_or_end_are_the_programs() -> None:
    """A cold cache: the first fifth of the steps waits for data, far beyond twice the bound."""
    cold = {**USUAL, "data": 305.0, "step": 400.0}
    steps = [cold] * 20 + [USUAL] * 80
    assert found(on_busy_machine(steps[0], 0.4, *steps[1:], repeat=1)) == ["data-wait"]


def test_steps_that_are_long_until_other_processes_end_are_no_finding() -> None:
    """They hold the processors in a part of the run only: what begins or ends may do so with them."""
    cold = {**USUAL, "data": 305.0, "step": 400.0}
    steps = [cold] * 20 + [USUAL] * 80
    assert found(on_busy_machine(steps[0], 0.4, *steps[1:], repeat=1, steady=False)) == []


def test_time_that_is_long_in_all_phases_alike_is_no_finding_on_a_busy_machine() -> None:
    """Another process ran beside the first fifth of the steps; on a quiet machine the same steps are a finding."""
    slow = {**{name: 4 * ms for name, ms in USUAL.items()}, "step": 400.0}
    steps = [slow] * 20 + [USUAL] * 80
    assert found(on_busy_machine(steps[0], 0.4, *steps[1:], repeat=1)) == []
    assert found(on_busy_machine(steps[0], 0.02, *steps[1:], repeat=1)) == ["hot-module"]
