"""The verdict on results that are made up."""

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


def test_sessions_are_held_against_full_backward_hooks() -> None:
    """By cost on top of bare: a third of theirs passes, more fails."""
    good = results(layers=workload(bare=1000, full_backward_hook=1600, session_both=1190))
    bad = results(layers=workload(bare=1000, full_backward_hook=1600, session_both=1210))
    assert find(good, "full_backward_hook").passed is True
    assert find(bad, "full_backward_hook").passed is False


def test_a_hook_left_behind_fails_whatever_the_time() -> None:
    """Closed means no hooks."""
    assert find(results(layers=workload(bare=1000, closed=1000)), "closed again").passed is True
    assert find(results(layers=workload(hooks_left=1, bare=1000, closed=1000)), "closed again").passed is False


def test_the_bounds_on_single_calls_scale_with_the_clock() -> None:
    """On a machine whose clock costs twice as much, a span may too."""
    micro = {"user": {"timed_off_ns": 400.0, "span_on_ns": 2900.0}, "imports": {"autoprof_s": 0.1}}
    assert find({**results(), "micro": {**micro, "clock_ns": 100.0}}, "span with").passed is True
    assert find({**results(), "micro": {**micro, "clock_ns": 50.0}}, "span with").passed is False
