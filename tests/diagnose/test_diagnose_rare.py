"""Time that only some steps take is judged by its sum over the run, and its rhythm is named."""

from __future__ import annotations

import random

import pytest
from evidence_builders import MS, evidence_of, finding_of, found

from autoprof.base.frame import BACKWARD_NAME, Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import Finding, Summary
from autoprof.diagnose import EvidenceCollector, RunFacts, StackTable, diagnose
from autoprof.diagnose._calls import CallSite
from autoprof.testing import make_frame

USUAL = {"data": 0.1, "forward": 4.0, "backward": 6.0, "optimizer": 0.5, "step": 11.0}


def run(numbers: range | set[int], steps: int = 160, facts: RunFacts | None = None, **longer: float) -> Summary:
    """Diagnose steps of which those with these numbers, counted from 1, spend more milliseconds in some phases."""
    total = 11.0 + sum(longer.values())
    long = {**USUAL, **{word: USUAL[word] + ms for word, ms in longer.items()}, "step": total}
    return diagnose(evidence_of(*(long if at in numbers else USUAL for at in range(1, steps + 1)), facts=facts))


@pytest.mark.parametrize(
    ("phase", "rule"), [("data", "data-wait"), ("optimizer", "optimizer"), ("forward", "hot-module")]
)
@pytest.mark.parametrize(("every", "named"), [(2, "every 2nd step"), (8, "every 8th step"), (11, "every 11th step")])
def test_a_rhythm_is_named_by_the_rule_of_its_phase(phase: str, rule: str, every: int, named: str) -> None:
    """The median step has none of it, or half of the steps."""
    summary = run(range(every, 161, every), **{phase: 60.0})
    assert found(summary) == [rule]
    assert f"60.0 ms in {named}" in why(summary, rule)


def why(summary: Summary, rule: str) -> str:
    """Return the text of a rule's finding."""
    finding: Finding = finding_of(summary, rule)
    return finding.why


def test_the_share_is_that_of_the_whole_run() -> None:
    """20 of 160 steps wait 60 ms: 1,200 of 2,960 ms."""
    summary = run(range(8, 161, 8), data=60.0)
    assert "(40.5 % of the run)" in why(summary, "data-wait")


def test_several_steps_in_a_row_have_a_rhythm() -> None:
    """The last two of twenty batches of each epoch come from a slow disk."""
    assert "60.0 ms in 2 of every 20 steps" in why(
        run({at for at in range(161) if at % 20 > 17}, data=60.0), "data-wait"
    )


def test_long_steps_without_a_rhythm_are_counted() -> None:
    """The distances have no common length."""
    summary = run({3, 10, 14, 33, 60, 61, 85, 97, 120, 131, 150, 159}, data=60.0)
    assert "60.0 ms in 12 of 160 steps" in why(summary, "data-wait")


def test_the_long_steps_of_a_model_are_not_those_of_its_recompute() -> None:
    """Other programs made seven steps longer in all phases: recompute has three tenths of them, and of all others."""
    usual = {"forward": 20.0, "recompute": 30.0, "backward": 50.0, "step": 100.0}
    long = {word: 8 * ms for word, ms in usual.items()}
    numbers = {2, 3, 4, 5, 8, 9, 11}
    summary = diagnose(evidence_of(*(long if at in numbers else usual for at in range(1, 118))))
    assert "42.6 ms (30.0 % of the step)" in why(summary, "recompute")


def test_one_stall_of_the_machine_is_no_rhythm() -> None:
    """However long it is."""
    assert found(run({70}, data=2_000.0)) == []


def test_what_is_long_in_all_phases_accuses_none() -> None:
    """Another process took the processor."""
    assert not {"data-wait", "optimizer", "hot-module"} & set(
        found(run(range(8, 161, 8), data=15.0, forward=15.0, optimizer=15.0))
    )


def test_a_module_is_not_accused_of_collections_of_garbage() -> None:
    """The longest steps are those with a collection."""
    facts = RunFacts(collected=tuple(range(20, 161, 20)), collections=8)
    assert finding_of(run(range(20, 161, 20), facts=facts, forward=100.0), "hot-module").severity == "info"


@pytest.mark.parametrize(
    ("numbers", "when"), [(range(81, 161), "the steps since 81"), (range(1, 61), "the steps up to 60")]
)
def test_a_cause_that_begins_or_ends_during_the_run_is_dated(numbers: range, when: str) -> None:
    """Half of the steps are long, in a row."""
    assert f"60.0 ms in {when} " in why(run(numbers, data=60.0), "data-wait")


def test_a_sampling_of_every_fourth_step_is_no_rhythm_of_the_program() -> None:
    """All recorded steps from 40 on are long: nothing is known of those between them."""
    recorded = [*range(1, 40), *range(40, 161, 4)]
    long = {**USUAL, "forward": 64.0, "step": 71.0}
    steps = [(number, long if number >= 80 else USUAL) for number in recorded]
    summary = diagnose(evidence_of(*(parts for _, parts in steps), numbers=[number for number, _ in steps]))
    assert "60.0 ms in the steps since 80 " in why(summary, "hot-module")


def test_time_in_no_span_has_its_rhythm_too() -> None:
    """Its mean is uncertain; that it comes every 8th step is not. Jitter does not say it again."""
    summary = run(range(8, 161, 8), step=60.0)
    assert found(summary) == ["unattributed"]
    assert "60.0 ms in every 8th step (40.5 % of the run) are in no module" in why(summary, "unattributed")


def test_what_each_step_is_charged_with_is_dated_where_it_began() -> None:
    """More than half of the steps have it, so the median has it too."""
    assert "in the steps since 61 " in why(run(range(61, 161), data=60.0), "data-wait")


def test_the_module_inside_is_named() -> None:
    """The model's own excess is less than that of its head: it leaves out another head in these steps."""
    usual = [Span("model", "", Phase.FORWARD, None, 0, 11 * MS), Span("quick", "quick", Phase.FORWARD, 0, 0, 4 * MS)]
    rare = [Span("model", "", Phase.FORWARD, None, 0, 67 * MS), Span("slow", "slow", Phase.FORWARD, 0, 0, 60 * MS)]
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 121):
        spans = usual if step % 3 else rare
        frame = make_frame(spans, step=step, duration_ns=spans[0].host_ns + MS)
        aggregate.add(frame)
        collector.add(frame)
    assert finding_of(diagnose(collector.evidence(aggregate.summary(), RunFacts())), "hot-module").name == "slow"


@pytest.mark.parametrize(("rhythm", "named"), [(False, False), (True, True)])
def test_more_calls_are_a_cause_only_where_they_have_a_rhythm(rhythm: bool, named: bool) -> None:
    """A model that chooses its depth for each batch is not slow in the deep ones; six calls every 8th step are rare."""
    chance = random.Random(0)
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 161):
        depth = (6 if step % 8 == 0 else 1) if rhythm else chance.choice([1, 1, 1, 6])
        whole = Span("model", "", Phase.FORWARD, None, 0, 10 * MS * depth)
        layers = [Span("layers.*", f"layers.{at}", Phase.FORWARD, 0, 10 * MS * at, 10 * MS) for at in range(depth)]
        frame = make_frame([whole, *layers], step=step, duration_ns=whole.host_ns + MS)
        aggregate.add(frame)
        collector.add(frame)
    summary = diagnose(collector.evidence(aggregate.summary(), RunFacts()))
    assert ("hot-module" in found(summary)) is named


@pytest.mark.parametrize(("forward", "others_ms", "named"), [(True, None, False), (True, 6, True), (False, None, True)])
def test_a_backward_that_only_some_steps_have_is_no_cause(forward: int, others_ms: int | None, named: bool) -> None:
    """A generator whose forward all steps need is trained in every third, after ``forward`` forwards; another task is
    all work of these steps."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 161):
        is_long = step % 3 == 0
        backward_ms = 60 if is_long else others_ms
        spans = [Span("other", "other", Phase.FORWARD, None, 0, MS)]
        calls = max(forward, 1) if is_long else min(forward, 1)
        begins = [(1 + 4 * at) * MS for at in range(calls)]
        spans += [Span("generator", "generator", Phase.FORWARD, None, begun_ns, 4 * MS) for begun_ns in begins]
        ended_ms = 1 + 4 * calls
        if backward_ms is not None:
            spans.append(Span("generator", "generator", Phase.BACKWARD, None, ended_ms * MS, backward_ms * MS))
        frame = make_frame(spans, step=step, duration_ns=(ended_ms + 1 + (backward_ms or 0)) * MS)
        aggregate.add(frame)
        collector.add(frame)
    summary = diagnose(collector.evidence(aggregate.summary(), RunFacts()))
    assert ("hot-module" in found(summary)) is named


@pytest.mark.parametrize(("call", "named"), [("backward", False), ("", True)])
def test_a_backward_without_code_of_the_program_is_no_cause_of_some_long_steps(call: str, named: bool) -> None:
    """It does what its forward has done; memory that is fetched from the system makes it longer now and then."""
    line = CallSite("train.py", 31, "step", call, "", 90, 90 * MS)
    stacks = {"backward block": StackTable(90, 90 * MS, (line,))}
    long = set(random.Random(0).sample(range(1, 161), 60))
    assert ("hot-module" in found(run(long, facts=RunFacts(stacks=stacks), backward=30.0))) is named


def test_steps_in_which_a_phase_is_long_accuse_no_row_that_is_short_in_them() -> None:
    """The backward of a block is long in every third step; that of operators outside of the model takes 1 ms."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 161):
        block_ms = 60 if step % 3 == 0 else 6
        spans = [
            Span("block", "block", Phase.FORWARD, None, 0, 4 * MS),
            Span("block", "block", Phase.BACKWARD, None, 4 * MS, block_ms * MS),
            Span(BACKWARD_NAME, None, Phase.BACKWARD, None, (4 + block_ms) * MS, MS),
        ]
        frame = make_frame(spans, step=step, duration_ns=(6 + block_ms) * MS)
        aggregate.add(frame)
        collector.add(frame)
    line = CallSite("train.py", 31, "main", "backward", "", 90, 90 * MS)
    facts = RunFacts(stacks={f"backward {BACKWARD_NAME}": StackTable(90, 90 * MS, (line,))})
    assert "unattributed" not in found(diagnose(collector.evidence(aggregate.summary(), facts)))


def test_stalls_of_the_machine_hide_no_begin() -> None:
    """Two steps before it are as long."""
    assert "60.0 ms in the steps since 81 " in why(run({7, 30, *range(81, 161)}, data=60.0), "data-wait")


def test_stalls_of_the_machine_hide_no_rhythm() -> None:
    """Four steps of 20 ms more, beside eight of 200 ms."""
    usual, stalled = {**USUAL}, {**USUAL, "data": 20.1, "step": 31.0}
    long = {**USUAL, "data": 200.1, "step": 211.0}
    parts = [long if at % 20 == 0 else stalled if at in {23, 57, 116, 131} else usual for at in range(1, 161)]
    assert "200.0 ms in every 20th step" in why(diagnose(evidence_of(*parts)), "data-wait")


def test_what_takes_longer_in_every_step_is_named() -> None:
    """The forward rises from 4 to 36 ms over the run."""
    steps = [{**USUAL, "forward": 4 + 0.2 * at, "step": 11 + 0.2 * at} for at in range(160)]
    said = why(diagnose(evidence_of(*steps)), "hot-module")
    assert said.startswith(
        "forward and backward get longer: from 13.9 ms in the first quarter of the run to 37.9 ms in the last one, "
        "most of it in block;"
    )


def test_jitter_says_only_what_the_long_steps_show() -> None:
    """No phase alone, where several are longer."""
    several = run(range(8, 161, 8), data=15.0, forward=15.0, optimizer=15.0)
    parts = "in every 8th step the extra time is 33.3 % data, 33.3 % forward, 33.3 % optimizer"
    assert f"No phase alone explains them: {parts}." in why(several, "jitter")


def test_a_rhythm_with_none_of_its_steps_among_the_longest_leaves_the_others_judged() -> None:
    """Eight others are longer by far, and only the eight longest steps are kept."""
    long, longest = {**USUAL, "forward": 64.0, "step": 71.0}, {**USUAL, "step": 900.0}
    steps = [long if at % 8 == 0 else longest if at % 17 == 0 else USUAL for at in range(1, 161)]
    assert found(diagnose(evidence_of(*steps))) == ["unattributed"]


@pytest.mark.parametrize(("calls", "severity"), [(6, "note"), (1, "warning")])
def test_long_steps_that_call_the_model_more_often_have_more_work(calls: int, severity: str) -> None:
    """A rollout before each eighth update: its calls, and the environment between them."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 81):
        several = calls if number % 8 == 0 else 1
        spans = [Span("net", "net", Phase.FORWARD, None, at * 10 * MS, 10 * MS) for at in range(several)]
        if number % 8 == 0 and calls == 1:
            spans = [Span("net", "net", Phase.FORWARD, None, 0, 60 * MS)]
        length_ms = 120 if number % 8 == 0 else 20
        frame = make_frame(spans, step=number, duration_ns=length_ms * MS)
        aggregate.add(frame)
        collector.add(frame)
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), RunFacts())), "jitter")
    assert (finding.severity, finding.gain_ns is None) == (severity, severity == "note")
    assert ("They call the model 6 times, the mean step 1.6 times." in finding.why) is (severity == "note")


def test_jitter_lists_steps_of_the_rhythm_that_it_names() -> None:
    """The machine made two others as long."""
    long = {**USUAL, "data": 15.1, "forward": 19.0, "optimizer": 15.5, "step": 56.0}
    steps = [long if at % 16 == 0 or at in (17, 100) else USUAL for at in range(1, 161)]
    said = why(diagnose(evidence_of(*steps)), "jitter")
    assert said.startswith("steps such as 16, 32, 48 take up to 56.0 ms")
    assert "in every 16th step the extra time is" in said


def test_spans_are_advised_only_where_time_is_in_none() -> None:
    """Long in data, forward and optimizer alike; and beside them in no span."""
    several = run(range(8, 161, 8), data=15.0, forward=15.0, optimizer=15.0)
    assert "spans" not in finding_of(several, "jitter").next
    outside = run(range(8, 161, 8), data=15.0, forward=15.0, step=15.0)
    assert finding_of(outside, "jitter").next.startswith("put spans around the code between the modules; compare")
