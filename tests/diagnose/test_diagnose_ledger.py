"""Each nanosecond of a step has one owner with one state, and no two findings gain the same one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from evidence_builders import MS, evidence_of, finding_of
from hypothesis import given
from hypothesis import strategies as st

from autoprof.base.frame import Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import POSTPONED, Finding, LedgerEntry, MetricStats, Stage, Summary, Work, WorkRow
from autoprof.diagnose import EvidenceCollector, RunFacts, StackTable, diagnose
from autoprof.diagnose._calls import CallSite
from autoprof.diagnose._claims import settle
from autoprof.diagnose._environment import Environment
from autoprof.reports.card import HEALTHY, render_card, verdict_line
from autoprof.testing import make_frame

BYTES_IN_30_MS = 30_000_000
"""Bytes that the slowest kinds of operators move in 30 ms."""


def states(summary: Summary) -> dict[str, int]:
    """Return the nanoseconds of a mean step by state."""
    found: dict[str, int] = {}
    for one in summary.ledger:
        found[one.state] = found.get(one.state, 0) + one.ns
    return found


def layers(
    *works: tuple[str, float, int],
    step_ms: float = 100,
    waiting: float = 0.0,
    threads: int = 1,
    stacks: Mapping[str, StackTable] | None = None,
    overhead: float = 0.0,
) -> Summary:
    """Diagnose steps of layers, each with its milliseconds in forward and the bytes that it moves there.

    The thread waits for a processor for ``waiting`` of the time.
    """
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans, at = [], 0
        for name, ms, _ in works:
            spans.append(Span(name, name, Phase.FORWARD, None, at, round(ms * MS)))
            at += round(ms * MS)
        frame = make_frame(spans, step=number, duration_ns=round(step_ms * MS))
        aggregate.add(frame)
        collector.add(frame)
    rows = tuple(WorkRow(name, {}, moved={"forward": moved}, operators={"forward": 1}) for name, _, moved in works)
    work = Work(flops={"forward": 1}, flops_per_s=66e9, rows=rows)
    shares = {"host_cpu_busy": 1.0, "host_cpu_cores": 1.0 - waiting, "host_cpu_waiting": waiting}
    metrics = {name: MetricStats(share, share, share, share, 5) for name, share in shares.items()}
    facts = RunFacts(environment=Environment("cpu", threads=threads, machine_cores=1), stacks=stacks or {})
    summary = replace(aggregate.summary(), work=work, metrics=metrics, overhead=overhead)
    return diagnose(collector.evidence(summary, facts))


def test_each_part_of_a_step_has_one_state() -> None:
    """A wait for data, recompute, a span of the program, and the time in no span; they add up to the step."""
    step: dict[str, float] = {"data": 10, "recompute": 20, "user": 30, "step": 100}
    found = states(diagnose(evidence_of(step, repeat=20)))
    assert found == {"waiting": 10 * MS, "choice": 20 * MS, "uncounted": 30 * MS, "unexplained": 40 * MS}


def test_excluded_time_is_a_choice_without_a_phase() -> None:
    """Half as long as all steps together."""
    summary = diagnose(evidence_of({"forward": 90}, repeat=20, stages=(Stage("torch.save", 5, 10**9, 5),)))
    assert LedgerEntry("torch.save", None, "choice", 50 * MS) in summary.ledger


def test_a_row_whose_bytes_take_as_long_is_explained() -> None:
    found = states(layers(("0", 30, BYTES_IN_30_MS), ("1", 60, 2 * BYTES_IN_30_MS)))
    assert found == {"arithmetic": 90 * MS, "unexplained": 10 * MS}


def test_a_row_that_takes_several_times_as_long_is_unexplained_beyond_its_work() -> None:
    """A tenth of a millisecond is the launch of its operator, and its bytes."""
    summary = layers(("0", 30, BYTES_IN_30_MS), ("1", 60, 80_000))
    assert LedgerEntry("1", Phase.FORWARD, "unexplained", round(59.9 * MS)) in summary.ledger
    finding = finding_of(summary, "hot-module")
    assert (finding.name, finding.gain_ns) == ("1", round(59.9 * MS))
    assert "its work explains 0.10 ms of it: 0 FLOP, 78.1 KiB read and written, 1 operator" in finding.why


def test_a_row_is_not_slow_because_its_machine_is() -> None:
    """Both rows take ten times as long for a byte as the slowest operators of a usual core."""
    assert "unexplained" not in states(
        layers(("0", 45, BYTES_IN_30_MS // 7), ("1", 45, BYTES_IN_30_MS // 7), step_ms=90)
    )


@pytest.mark.parametrize(("waiting", "threads", "named"), [(0.0, 2, True), (0.6, 1, True), (0.6, 2, False)])
def test_a_wait_for_processors_does_not_count_as_a_slow_row(waiting: float, threads: int, named: bool) -> None:
    """Of a row that takes twelve times as long; on two threads each operator waits for the other one as well."""
    summary = layers(("0", 30, BYTES_IN_30_MS), ("1", 60, BYTES_IN_30_MS // 6), waiting=waiting, threads=threads)
    assert ("unexplained" in {one.state for one in summary.ledger if one.name == "1"}) is named


@pytest.mark.parametrize(("waiting", "verdict"), [(0.0, "unclear: 15.0 % of the step is in no span"), (0.8, HEALTHY)])
def test_autoprofs_own_work_waits_for_processors_too(waiting: float, verdict: str) -> None:
    """A hundredth of a step by processor time is a twentieth of it where the thread waits four fifths of the time."""
    judged = layers(("0", 28, 28_000_000), ("1", 56, 56_000_000), waiting=waiting, overhead=0.01)
    assert verdict_line(judged) == verdict


def test_a_wait_that_no_rule_has_judged_is_not_called_healthy() -> None:
    """Steps wait for data from the middle of the run on, beside other processes that have come meanwhile."""
    wait = LedgerEntry("Data", Phase.DATA, "waiting", 32 * MS)
    healthy = layers(("0", 30, BYTES_IN_30_MS), ("1", 60, 2 * BYTES_IN_30_MS))
    text = " ".join(" ".join(render_card(replace(healthy, ledger=(wait,)))).split())
    assert text.startswith("Verdict unclear: 32.0 % of the step is a wait (Data) Why no rule found anything")
    assert "Next a longer run, or one beside no other processes, tells whether" in text


@pytest.mark.parametrize(("reason", "named"), [("no formula for svd", True), (POSTPONED, False)])
def test_a_forward_whose_work_cannot_be_counted_is_not_called_healthy(reason: str, named: bool) -> None:
    """Its lines lead. Where the count is only postponed, a longer run will tell."""
    svd = LedgerEntry("0", Phase.FORWARD, "uncounted", 32 * MS, "train.py:20 forward (`svd(self.weight)`), 90.0 %")
    healthy = layers(("0", 30, BYTES_IN_30_MS), ("1", 60, 2 * BYTES_IN_30_MS))
    text = " ".join(" ".join(render_card(replace(healthy, ledger=(svd,), work=Work(reason=reason)))).split())
    unclear = "Verdict unclear: 32.0 % of the step is forward of 0, whose work was not counted: train.py:20 forward"
    assert text.startswith(unclear) is named
    assert ("Next begin with these lines" in text) is named


def test_a_note_does_not_hide_what_a_step_consists_of() -> None:
    healthy = layers(("0", 30, BYTES_IN_30_MS), ("1", 60, 2 * BYTES_IN_30_MS))
    note = Finding("rollout", severity="note", why="It is there", next="keep it", name="collect")
    text = " ".join(" ".join(render_card(replace(healthy, findings=(note,)))).split())
    assert "Why It is there. Beside it, a step is forward 90.0 %, other 10.0 %; most of it in 1 (60.0 %)" in text
    assert "No rule found anything" not in text


def test_a_healthy_verdict_says_what_the_work_explains() -> None:
    text = " ".join(" ".join(render_card(layers(("0", 30, BYTES_IN_30_MS), ("1", 60, 2 * BYTES_IN_30_MS)))).split())
    assert text.startswith(
        "Verdict nothing stands out Why a step is forward 90.0 %, other 10.0 %; most of it in 1 (60.0 %)"
    )
    assert "90.0 % of it is explained by the model's work, at 66.0 GFLOP/s. No rule found anything" in text


@pytest.mark.parametrize(("reason", "next_step"), [(None, "nothing to mend;"), ("unknown", "no cause was found;")])
def test_nothing_has_to_be_mended_only_where_the_work_explains_the_step(reason: str | None, next_step: str) -> None:
    """Where it was not counted, nothing is known of most of the step."""
    healthy = layers(("0", 30, BYTES_IN_30_MS), ("1", 60, 2 * BYTES_IN_30_MS))
    if reason is not None:
        ledger = tuple(replace(one, state="uncounted") for one in healthy.ledger if one.state == "arithmetic")
        healthy = replace(healthy, work=Work(reason=reason), ledger=ledger)
    assert f"Next {next_step} to spend less" in " ".join(" ".join(render_card(healthy)).split())


@pytest.mark.parametrize(("torch_ns", "named"), [(0, True), (8_000, False)])
def test_a_healthy_verdict_names_the_lines_of_the_longest_modules(torch_ns: int, named: bool) -> None:
    """Arithmetic that nobody needs is explained by its work too. The line that calls a layer of torch says nothing."""
    line = CallSite("model.py", 25, "forward", "one_hot", "y = one_hot(x, 9).float() @ w", 40, 8_000, "", torch_ns)
    stacks = {"forward 1": StackTable(50, 10_000, (line,))}
    summary = layers(("0", 30, BYTES_IN_30_MS), ("1", 60, 2 * BYTES_IN_30_MS), stacks=stacks)
    text = " ".join(" ".join(render_card(summary)).split())
    lines = " (of its forward model.py:25 one_hot (`y = one_hot(x, 9).float() @ w`), 80.0 %)"
    assert f"begin with the work of 1{lines if named else ''} and 0: is all of its output used" in text


def claimed(*findings: tuple[str, str | None, Phase | None, int]) -> list[tuple[str, int | None]]:
    """Return the gains after two layers of 40 ms and 20 ms outside were shared among findings."""
    ledger = [
        LedgerEntry("0", Phase.FORWARD, "arithmetic", 40 * MS),
        LedgerEntry("1", Phase.FORWARD, "unexplained", 40 * MS),
        LedgerEntry(None, Phase.OTHER, "unexplained", 20 * MS),
    ]
    made: list[Any] = [Finding(rule, "warning", "", "", name, phase, gain_ns=ns) for rule, name, phase, ns in findings]
    return [(one.rule, one.gain_ns) for one in settle(made, ledger, 100 * MS)]


def test_a_finding_gains_only_the_time_that_larger_ones_leave() -> None:
    """Of a layer's 40 ms another finding has 30; of the forward's 80 there are 50 left."""
    found = claimed(("hot-module", "1", Phase.FORWARD, 30 * MS), ("small-batch", None, Phase.FORWARD, 80 * MS))
    assert found == [("hot-module", 30 * MS), ("small-batch", 50 * MS)]


def test_a_module_claims_the_time_of_the_modules_in_it_where_it_is_named_for_more_than_its_own() -> None:
    own, inner = (LedgerEntry(name, Phase.BACKWARD, "arithmetic", ns) for name, ns in (("body", 1), ("body/0", 40)))
    finding = Finding("unused-gradients", "warning", "", "", "body", Phase.BACKWARD, gain_ns=20)
    assert list(settle([finding], [own, inner], 100)) == [finding]


def test_a_finding_of_a_phase_comes_before_one_that_names_its_row_alone() -> None:
    """A copy that the step waits for, and the device that has no work meanwhile."""
    found = claimed(("launch-bound", "1", None, 41 * MS), ("h2d-copy", "1", Phase.FORWARD, 40 * MS))
    assert found == [("h2d-copy", 40 * MS)]


def test_a_finding_whose_time_is_taken_is_left_out() -> None:
    """The line in no span, and the long steps that it makes."""
    found = claimed(("unattributed", "train.py:9 f", Phase.OTHER, 20 * MS), ("logging", None, Phase.OTHER, 15 * MS))
    assert found == [("unattributed", 20 * MS)]


def test_a_finding_of_a_row_comes_before_one_of_the_whole_step() -> None:
    """Long steps, most of which is the time in no span that a line takes."""
    found = claimed(("jitter", None, None, 90 * MS), ("unattributed", None, Phase.OTHER, 20 * MS))
    assert found == [("jitter", 80 * MS), ("unattributed", 20 * MS)]


def test_the_code_that_makes_this_rank_the_slow_one_is_a_note_beside_it() -> None:
    """The rank is the cause for which all others wait; the line says of which code."""
    line = Finding("unattributed", "critical", "", "", "train.py:9 f", Phase.OTHER, gain_ns=20 * MS)
    slow = Finding("straggler", "warning", "", "", "(other)", Phase.OTHER, 0, gain_ns=18 * MS)
    ledger = [LedgerEntry(None, Phase.OTHER, "unexplained", 20 * MS)]
    assert list(settle([line, slow], ledger, 100 * MS)) == [replace(line, severity="note", gain_ns=None), slow]


@given(st.lists(st.tuples(st.sampled_from(["0", "1", None]), st.integers(0, 200)), max_size=8))
def test_the_gains_add_up_to_a_step_at_most(gains: list[tuple[str | None, int]]) -> None:
    found = claimed(*(("any", name, None, ns * MS) for name, ns in gains))
    assert sum(ns or 0 for _, ns in found) <= 100 * MS


def test_an_abstention_claims_nothing() -> None:
    entry = LedgerEntry("0", Phase.FORWARD, "arithmetic", MS)
    finding = Finding("any", "info", "", "", gain_ns=9 * MS)
    assert list(settle([finding], [entry], MS)) == [finding]
