"""The rules on calls, compilations and outliers, on facts made by hand and on fake and real courses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_builders import MS, evidence_of, finding_of, found

from autoprof.base.frame import Phase, Span
from autoprof.base.stats.intervals import Interval
from autoprof.diagnose import CallStatistics, RunFacts, diagnose
from autoprof.diagnose._calls import CallSite, CompileStatistics, idle_after_waits_ns
from autoprof.probes._call_table import Site
from autoprof.probes.compilations import CompiledFunction
from autoprof.ranks import RankComparison, SlowRank
from autoprof.testing import make_frame

STEP = {"data": 1, "forward": 30, "backward": 60, "optimizer": 4}
PLACE = Site("/somewhere/train.py", 42, "train", "item")


def calls(cost_ms: float, mean_ms: float, *, spread: float = 0.0) -> CallStatistics:
    """Make the facts of one site."""
    cost = round(cost_ms * MS)
    site = CallSite(*PLACE, "total += loss.item()", 40, round(40 * mean_ms * MS))
    values = cost, round(cost * (1 + spread)), round(cost * (1 - spread)), round(cost * (1 + spread))
    return CallStatistics(40, values, cost, round(mean_ms * MS), (site,))


# Calls that wait.


def test_the_finding_names_the_call_its_line_and_its_cost() -> None:
    """The line, the host's wait, and the device's idle time afterwards."""
    evidence = evidence_of(STEP, repeat=40, facts=RunFacts(waits=calls(12.3, 50)), clock="device")
    finding = diagnose(evidence).findings[0]
    assert (finding.rule, finding.name, finding.gain_ns) == ("sync-call", "somewhere/train.py:42", 12_300_000)
    assert "50.0 ms of each step" in finding.why
    assert "`total += loss.item()` at somewhere/train.py:42 (50.0 ms a step)" in finding.why
    assert "at most 12.3 ms a step (12.3 %)" in finding.why


def test_a_long_wait_without_idle_time_afterwards_is_no_finding() -> None:
    """The wait itself costs nothing: meanwhile the device works."""
    assert found(diagnose(evidence_of(STEP, repeat=40, facts=RunFacts(waits=calls(1, 80)), clock="device"))) == []


def frame_of(marks: list[tuple[int, int, int, int]], *, host: int, device: int) -> Any:
    """Make a frame of spans: host start and length, device start and length, in ms."""
    spans = [
        Span("m", "m", Phase.FORWARD, None, a * MS, b * MS, device_start_ns=c * MS, device_ns=d * MS)
        for a, b, c, d in marks
    ]
    return make_frame(spans, duration_ns=host * MS, device_duration_ns=device * MS)


def test_the_device_is_idle_from_the_end_of_a_wait_to_its_first_late_mark() -> None:
    """A launch of 8 ms, then a kernel: 8 ms, although the wait before was 20."""
    # The host waits from 0 to 20, launches until 28 (the mark at 28 is passed at 38), and goes on.
    frame = frame_of([(20, 8, 20, 18)], host=40, device=40)
    assert idle_after_waits_ns(frame, 0, [(PLACE, 0, 20 * MS)]) == 8 * MS


# Compilations.


def compiled(count: int, ns: int, *, gave_up: bool = False) -> RunFacts:
    """Make the facts of one function, compiled again ``count`` times in 1 s of steps."""
    one = CompiledFunction("block", "/code/model.py", 12, count, "size mismatch at index 0", gave_up)
    return RunFacts(compiled=CompileStatistics(40, 1000 * MS, count, ns, (one,)))


def test_a_function_compiled_again_and_again_is_named_with_the_reason() -> None:
    """The count, the time, the line, and torch's reason."""
    finding = diagnose(evidence_of(STEP, repeat=40, facts=compiled(6, 180 * MS))).findings[0]
    assert (finding.rule, finding.name, finding.gain_ns) == ("recompile", "block", 4_500_000)
    assert "6 times" in finding.why
    assert "block at code/model.py:12, because size mismatch at index 0" in finding.why


@pytest.mark.parametrize(("count", "ns"), [(2, 180 * MS), (6, 10 * MS), (0, 500 * MS)])
def test_a_few_compilations_are_how_torch_works(count: int, ns: int) -> None:
    """Twice is finding out that a shape is dynamic; little time is no loss; a first compilation is not again."""
    assert "recompile" not in found(diagnose(evidence_of(STEP, repeat=40, facts=compiled(count, ns))))


def test_a_function_that_torch_has_given_up_is_critical_however_long_ago() -> None:
    """From then on it runs uncompiled, and no time is lost to compiling that would show it."""
    finding = finding_of(diagnose(evidence_of(STEP, repeat=40, facts=compiled(0, MS, gave_up=True))), "recompile")
    assert (finding.severity, "runs it uncompiled" in finding.why) == ("critical", True)


# Communication and the rank that is waited for.

TOGETHER = {"data": 1, "forward": 20, "backward": 40, "comm": 30, "optimizer": 4}


def slow_rank(rank: int, excess_ms: int, comm_ms: tuple[int, ...], pure_ms: int) -> RunFacts:
    """Make the facts of rank 0 in a run of two, one of which works longer; ``pure_ms`` of communication is no wait."""
    ns = excess_ms * MS
    slow = SlowRank(rank, "persistent", "module", "a", Phase.FORWARD, ns, Interval.exact(ns), ns, 40)
    ranks = RankComparison(
        2,
        steps=40,
        step_ns=100 * MS,
        own_ns=(65 * MS, 65 * MS),
        slow=(slow,) if excess_ms >= 5 else (),
        comm_ns=tuple(ms * MS for ms in comm_ms),
        pure_comm_ns=pure_ms * MS,
    )
    return RunFacts(world_size=2, ranks=ranks)


def test_waiting_for_a_slow_rank_is_reported_once() -> None:
    """Half of the 30 ms of communication is the wait for rank 1."""
    assert found(diagnose(evidence_of(TOGETHER, repeat=40, facts=slow_rank(1, 15, (30, 15), 15)))) == ["straggler"]


def test_communication_is_found_if_a_slow_rank_explains_less_than_half() -> None:
    """Rank 1 works 14 ms longer; the other 16 of the 30 ms of communication are the link's."""
    summary = diagnose(evidence_of(TOGETHER, repeat=40, facts=slow_rank(1, 14, (30, 16), 16)))
    assert found(summary) == ["comm-exposed", "straggler"]


def test_communication_is_not_judged_before_the_ranks_are_compared() -> None:
    """It may be the wait for a slower rank: advice to overlap it would be wrong."""
    for ranks in (None, RankComparison(2, "steps that all ranks have recorded: 10 needed, 0 so far")):
        summary = diagnose(evidence_of(TOGETHER, repeat=40, facts=RunFacts(world_size=2, ranks=ranks)))
        assert found(summary) == []
        finding = finding_of(summary, "comm-exposed")
        assert finding is not None
        assert finding.evidence["missing"].startswith("the comparison of the ranks")


def test_communication_of_alike_ranks_is_found_without_the_waits_for_each_other() -> None:
    """Of 30 ms, 12 ms are the wait for whichever rank comes last: the advice can gain the other 18."""
    finding = finding_of(
        diagnose(evidence_of(TOGETHER, repeat=40, facts=slow_rank(1, 1, (30, 30), 18))), "comm-exposed"
    )
    assert finding.gain_ns == 18 * MS
    assert "of it, 40.0 % is the wait for other ranks; no rank's own work is longer" in finding.why


def test_all_facts_go_to_json_and_back() -> None:
    """They are part of ``run.json``."""
    import json

    facts = replace(compiled(6, MS), waits=calls(1, 2), logs=calls(3, 4), ranks=RankComparison(2, "nothing"))
    assert RunFacts.from_dict(json.loads(json.dumps(facts.to_dict()))) == facts


# Confidence.


def noisy(seed: int, *, data: float) -> Any:
    """Make a run whose spans scatter by a tenth, with now and then a step of thrice its length."""
    drawn = np.random.default_rng(seed)
    steps = []
    for _ in range(120):
        parts = {word: ms * float(drawn.lognormal(0, 0.1)) for word, ms in {**STEP, "data": data}.items()}
        extra = 2 * sum(parts.values()) if drawn.random() < 0.02 else 0.0
        steps.append({**parts, "step": sum(parts.values()) + extra})
    return steps


@pytest.mark.parametrize(("data", "verdict"), [(25.0, "data-wait"), (1.0, None)])
def test_two_runs_of_one_program_get_one_verdict(data: float, verdict: str | None) -> None:
    """Ten runs that differ by chance alone."""
    said = {tuple(found(diagnose(evidence_of(*noisy(seed, data=data))))[:1]) for seed in range(10)}
    assert said == {() if verdict is None else (verdict,)}


def test_near_a_bound_runs_never_get_opposite_verdicts() -> None:
    """The steps of one run, drawn again with replacement: found and inconclusive, or silent and inconclusive."""
    steps = noisy(0, data=11.0)
    said = set()
    for seed in range(15):
        drawn = np.random.default_rng(seed).integers(len(steps), size=len(steps))
        finding = finding_of(diagnose(evidence_of(*(steps[at] for at in drawn))), "data-wait")
        said.add("silent" if finding is None else "near" if finding.severity == "info" else "found")
    assert not {"silent", "found"} <= said
