"""A module is accused only against its like siblings, or against the arithmetic of the whole model."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from evidence_builders import MS, finding_of

from autoprof.base.frame import Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import MemoryRow, Summary, Work, WorkRow
from autoprof.diagnose import EvidenceCollector, RunFacts, StackTable, diagnose
from autoprof.diagnose._calls import CallSite
from autoprof.testing import make_frame


def run(
    modules: dict[str, float],
    *,
    spread: float = 0.01,
    bytes_of: dict[str, int] | None = None,
    work: Work | None = None,
    name: str | None = None,
) -> Summary:
    """Diagnose steps in which modules take so many milliseconds one after the other; ``name`` is the row they share."""
    draw, aggregate, collector = random.Random(3), Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans, at = [], 0
        for fqn, ms in modules.items():
            ns = round(ms * MS * draw.lognormvariate(0, spread))
            spans.append(Span(fqn if name is None else name, fqn, Phase.FORWARD, None, at, ns))
            at += ns
        if name is not None:
            spans.append(Span("head", "head", Phase.FORWARD, None, at, MS))
        frame = make_frame(spans, step=number, duration_ns=round(at * 1.05))
        aggregate.add(frame)
        collector.add(frame)
    held = tuple(MemoryRow(name, parameter_bytes=count) for name, count in (bytes_of or {}).items())
    return diagnose(collector.evidence(replace(aggregate.summary(), memory_table=held, work=work), RunFacts()))


def work_of(**flops: int) -> Work:
    rows = tuple(WorkRow(name, {"forward": count}) for name, count in flops.items())
    return Work(flops={"forward": sum(flops.values())}, rows=rows)


def test_a_block_much_longer_than_its_siblings_is_found_with_its_excess() -> None:
    """Four times as long as three blocks of the same structure."""
    finding = finding_of(run({"h.0": 10, "h.1": 40, "h.2": 10, "h.3": 10}), "hot-module")
    assert (finding.severity, finding.name) == ("critical", "h.1")
    assert finding.evidence["times"] == pytest.approx(4, abs=0.2)
    assert finding.gain_ns == pytest.approx(30 * MS, rel=0.05)


def test_a_block_that_shares_its_row_is_compared_with_the_others_of_the_row() -> None:
    """Four times as long as the median of nineteen equal blocks, in a row that is the sum of all."""
    blocks = {f"h.{number}": 40 if number == 13 else 10 for number in range(20)}
    finding = finding_of(run(blocks, name="h.*"), "hot-module")
    assert (finding.severity, finding.name, finding.evidence["siblings"]) == ("warning", "h.*", 19)
    assert finding.evidence["module"] == "h.13"
    assert finding.why.startswith("h.13 takes 4.0 x as long")
    assert finding.gain_ns == pytest.approx(30 * MS, rel=0.05)


def test_a_long_container_is_not_accused() -> None:
    """A transformer beside its embedding and its head: a container is the sum of its blocks."""
    assert finding_of(run({"transformer": 87, "embedding": 3, "head": 10}), "hot-module") is None


def test_a_block_with_more_parameters_than_its_siblings_is_not_accused() -> None:
    """The stages of a pyramid have other widths."""
    sizes = {"stage.0": 100, "stage.1": 4000, "stage.2": 100, "stage.3": 100}
    times = {"stage.0": 10, "stage.1": 40, "stage.2": 10, "stage.3": 10}
    assert finding_of(run(times, bytes_of=sizes), "hot-module") is None


def test_siblings_that_vary_too_much_make_it_inconclusive() -> None:
    """Another run would differ."""
    finding = finding_of(run({"h.0": 10, "h.1": 33, "h.2": 10, "h.3": 10}, spread=0.4), "hot-module")
    assert finding.severity == "info"


def test_a_module_without_arithmetic_that_takes_most_of_the_step_is_found() -> None:
    """A loop in Python in one forward, beside a layer that has the FLOPs."""
    finding = finding_of(run({"loop": 60, "layer": 30}, work=work_of(loop=1, layer=1000)), "hot-module")
    assert (finding.severity, finding.name) == ("critical", "loop")
    assert "its work explains 0.03 ms of it: 1 FLOP" in finding.why


@pytest.mark.parametrize(("backward_ms", "severity"), [(10, "critical"), (60, None)])
def test_a_forward_longer_than_its_backward_is_code_that_is_no_arithmetic(
    backward_ms: int, severity: str | None
) -> None:
    """A mask built for 50 ms in a model whose layer takes 5 ms; a model with a backward as long is healthy."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [
            Span("Model", "", Phase.FORWARD, None, 0, 55 * MS),
            Span("layer", "layer", Phase.FORWARD, 0, 50 * MS, 5 * MS),
            Span("Model", "", Phase.BACKWARD, None, 55 * MS, backward_ms * MS),
            Span("layer", "layer", Phase.BACKWARD, 2, 55 * MS, backward_ms * MS),
        ]
        frame = make_frame(spans, step=number, duration_ns=(60 + backward_ms) * MS)
        aggregate.add(frame)
        collector.add(frame)
    lines = (CallSite("train.py", 88, "forward", "make_mask", "", 40, 400 * MS),)
    facts = RunFacts(stacks={"forward Model": StackTable(40, 400 * MS, lines)})
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "hot-module")
    assert (finding and finding.severity) == severity
    if finding is not None:
        assert (finding.name, finding.gain_ns) == ("Model", 45 * MS)
        assert "train.py:88 make_mask" in finding.why


def test_a_block_with_a_row_of_its_own_is_compared_with_those_that_share_one() -> None:
    """``h.4`` takes 15 ms; each of the five blocks of ``h.*`` takes 2.4."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [
            Span(name, fqn, Phase.FORWARD, None, round(start * MS), round(ms * MS))
            for name, fqn, start, ms in (
                *(("h.*", f"h.{at}", 2.4 * at, 2.4) for at in range(4)),
                ("h.4", "h.4", 10, 15),
                ("h.*", "h.5", 25, 2.4),
            )
        ]
        frame = make_frame(spans, step=number, duration_ns=30 * MS)
        aggregate.add(frame)
        collector.add(frame)
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), RunFacts())), "hot-module")
    assert (finding.name, finding.evidence["siblings"]) == ("h.4", 5)
    assert finding.evidence["times"] == pytest.approx(15 / 2.4, abs=0.1)
