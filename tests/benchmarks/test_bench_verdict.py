"""The verdict on results that are made up."""

from __future__ import annotations

from typing import Any

from benchmarks.verdict import verdict


def workload(hooks_left: int = 0, **values: float) -> dict[str, Any]:
    blocks = {name: [{"round": i, "value_ns": value} for i in range(20)] for name, value in values.items()}
    return {"blocks": blocks, "hooks_left": hooks_left}


def results(**workloads: Any) -> dict[str, Any]:
    return {"workloads": workloads, "options": {"size": "tiny"}}


def find(measured: dict[str, Any], words: str) -> Any:
    (bound,) = (bound for bound in verdict(measured) if words in bound.subject)
    return bound


def test_what_was_not_measured_neither_passes_nor_fails() -> None:
    """An empty run has every bound, and no verdict on any."""
    bounds = verdict(results())
    assert len(bounds) > 10
    assert {bound.passed for bound in bounds} == {None}


def test_recording_is_held_against_the_floor() -> None:
    """By cost on top of bare: 1.2 times the floor passes, 1.3 times fails."""
    good = results(layers=workload(bare=1000, floor_forward=1100, record_forward=1120))
    bad = results(layers=workload(bare=1000, floor_forward=1100, record_forward=1130))
    assert find(good, "recording, forward").passed is True
    assert find(bad, "recording, forward").passed is False


def test_a_further_module_leaves_out_what_a_step_costs() -> None:
    """A cost of 500 that every step has, long or short, is in neither side of the ratio."""

    def chain(layers: int, each: int) -> dict[str, Any]:
        return workload(bare=layers * 10, floor_forward=layers * 20, record_forward=layers * (10 + each) + 500)[
            "blocks"
        ]

    def measured(each: int) -> dict[str, Any]:
        blocks = {"short": chain(10, each), "long": chain(40, each)}
        return {**results(), "further": {"blocks": blocks}}

    assert find(measured(12), "further module, recorded forward").measured.startswith("1.20×")
    assert find(measured(12), "further module, recorded forward").passed is True
    assert find(measured(13), "further module, recorded forward").passed is False
    assert find(measured(12), "further module, recorded both").passed is None


def test_a_hook_left_behind_fails_whatever_the_time() -> None:
    """Closed means no hooks."""
    assert find(results(layers=workload(bare=1000, closed=1000)), "closed again").passed is True
    assert find(results(layers=workload(hooks_left=1, bare=1000, closed=1000)), "closed again").passed is False


def test_the_bounds_on_single_calls_scale_with_the_clock() -> None:
    """On a machine whose clock costs twice as much, a span may too."""
    micro = {"user": {"timed_off_ns": 400.0, "span_on_ns": 2900.0}, "imports": {"autoprof_s": 0.1}}
    assert find({**results(), "micro": {**micro, "clock_ns": 100.0}}, "span with").passed is True
    assert find({**results(), "micro": {**micro, "clock_ns": 50.0}}, "span with").passed is False


def test_memory_may_grow_by_a_megabyte() -> None:
    """From the first reading to the last, whatever it was in between."""
    readings = [{"steps": 10_000, "rss_bytes": 100 << 20}, {"steps": 1_000_000, "rss_bytes": 102 << 20}]
    grown = {**results(), "memory": {"engine": readings, "sinks": readings[:1]}}
    assert find(grown, "10,000 on, engine and").passed is True
    assert [bound.passed for bound in verdict(grown) if bound.subject.endswith("on, engine")] == [False]
