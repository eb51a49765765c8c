"""Notes on calls whose result may be unused."""

from __future__ import annotations

import pytest
from evidence_builders import MS, evidence_of

from autoprof.base.frame import Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.diagnose import EvidenceCollector, RunFacts, diagnose
from autoprof.testing import make_frame


def notes(forwards: int, backwards: int, ms: float = 10) -> list[str]:
    """Return the notes on a block with so many forwards and backwards in each step of 100 ms."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    phases = [Phase.FORWARD] * forwards + [Phase.BACKWARD] * backwards
    spans = [
        Span("block", "block", phase, None, round(ms * MS) * at, round(ms * MS)) for at, phase in enumerate(phases)
    ]
    for step in range(1, 21):
        frame = make_frame(spans, step=step, duration_ns=100 * MS)
        aggregate.add(frame)
        collector.add(frame)
    summary = diagnose(collector.evidence(aggregate.summary(), RunFacts()))
    return [note for note in summary.notes if note.startswith("block")]


def test_a_module_that_is_called_twice_and_used_once_is_noted() -> None:
    """One of its two forwards has no backward."""
    assert notes(2, 1) == [
        "block is called 2 times a step, and 1 of the calls have a backward pass: is the result of the others used?"
    ]


@pytest.mark.parametrize(("forwards", "backwards", "ms"), [(2, 2, 10), (1, 0, 10), (2, 1, 0.5)])
def test_other_modules_are_not_noted(forwards: int, backwards: int, ms: float) -> None:
    """Those with a backward for each forward, without any gradient, or short."""
    assert notes(forwards, backwards, ms) == []


@pytest.mark.parametrize(("growth", "noted"), [(0.5, True), (0.0, False)])
def test_steps_that_get_longer_are_noted(growth: float, noted: bool) -> None:
    """From 20 ms on by half a millisecond in each step, or alike."""
    steps = [{"forward": 10 + growth * at, "step": 20 + growth * at} for at in range(80)]
    found = [note for note in diagnose(evidence_of(*steps)).notes if note.startswith("steps get longer")]
    note = "steps get longer: from 24.8 ms in the first quarter of the run to 54.8 ms in the last one"
    assert found == [note] * noted
