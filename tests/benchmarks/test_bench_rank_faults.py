"""The seeded faults of many ranks: drawn evenly, and scored by the truth."""

from collections import Counter
from typing import Any

from benchmarks.rank_faults.__main__ import has_passed, page
from benchmarks.rank_faults.faults import FIRST_STEP, KINDS, RANKS, STEPS, Fault, Run, draw_runs
from benchmarks.rank_faults.score import judge


def _result(*findings: dict[str, Any], **fields: Any) -> dict[str, Any]:
    usual = {"findings": list(findings), "hung": False, "errors": {}, "ended": [], "saved": None, "seconds": 1.0}
    return {**usual, **fields}


def _straggler(rank: int, name: str, phase: str) -> dict[str, Any]:
    found = {"rule": "straggler", "severity": "warning", "why": "", "evidence": {}}
    return {**found, "rank": rank, "name": name, "phase": phase}


FORWARD = Run(0, 0, fault=Fault("forward", "persistent", 2, 0.005, "middle"))


def test_each_kind_comes_with_each_pattern() -> None:
    """Faults are spread evenly over kinds and patterns, on all ranks, and not in warm-up steps."""
    runs = draw_runs(210, 100, 3)
    faults = [run.fault for run in runs if run.fault is not None]
    assert len(runs) - len(faults) == 100
    cells = Counter((fault.kind, fault.pattern) for fault in faults)
    assert {kind for kind, _ in cells} == set(KINDS)
    assert set(cells.values()) == {10}
    assert {fault.rank for fault in faults} == set(range(RANKS))
    assert all(FIRST_STEP <= step < STEPS for fault in faults for step in fault.steps)
    assert all(bool(fault.steps) == (fault.pattern != "persistent") for fault in faults)


def test_a_verdict_is_right_in_rank_module_and_phase() -> None:
    """Another rank, module or phase is wrong; so is no verdict. A child of the module is in the module."""
    assert judge(FORWARD, _result(_straggler(2, "middle", "forward")))["right"]
    assert judge(FORWARD, _result(_straggler(2, "middle/layer", "forward")))["right"]
    for wrong in ((1, "middle", "forward"), (2, "first", "forward"), (2, "middle", "backward")):
        assert not judge(FORWARD, _result(_straggler(*wrong)))["right"]
    assert not judge(FORWARD, _result())["right"]
    assert not judge(FORWARD, _result(_straggler(2, "middle", "forward"), hung=True))["right"]


def test_the_goal_needs_the_faults_the_healthy_runs_and_no_hang() -> None:
    """19 of 20 faults are enough; one accused healthy run, or one that hangs, is too much."""

    def entry(right: bool, fault: dict[str, Any] | None, hung: bool = False) -> dict[str, Any]:
        return {
            "run": {"fault": fault, "form": "ddp"},
            "verdict": {"right": right, "accused": not right, "sampled": True},
            "hung": hung,
        }

    fault = {"kind": "forward", "pattern": "persistent"}
    good = [entry(at > 0, fault) for at in range(20)] + [entry(True, None)]
    assert has_passed(good)
    assert not has_passed([*good, entry(False, fault)])
    assert not has_passed([*good, entry(False, None)])
    assert not has_passed([*good, entry(True, None, hung=True)])
    text = "\n".join(page(good, 43))
    assert "19 of 20 faults right in rank, module and phase; 0 of 1 healthy runs accused" in text
    assert "| forward, persistent | 20 | 19 | 1 | 0 |" in text
    assert "| ddp | 21 | 20 | 1 | 0 |" in text
