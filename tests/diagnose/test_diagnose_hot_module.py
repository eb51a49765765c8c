"""One module that dominates: how long it is against the next one is an interval, too."""

from __future__ import annotations

import random

import pytest
from evidence_builders import MS, finding_of

from autoprof._stats import Aggregate
from autoprof.diagnose import EvidenceCollector, RunFacts, diagnose
from autoprof.frame import Phase, Span
from autoprof.summary import Summary
from autoprof.testing import make_frame

STEP_NS = 100 * MS


def run(hot_ms: float, beside_ms: float, *, spread: float, steps: int = 40) -> Summary:
    """Diagnose steps in which two modules take this long, the one beside the hot one varying by ``spread``."""
    draw, aggregate, collector = random.Random(3), Aggregate(), EvidenceCollector()
    for number in range(1, steps + 1):
        hot = round(hot_ms * MS)
        beside = round(beside_ms * MS * draw.lognormvariate(0, spread))
        spans = [
            Span("hot", "hot", Phase.FORWARD, None, 0, hot),
            Span("beside", "beside", Phase.FORWARD, None, hot, beside),
        ]
        frame = make_frame(spans, step=number, duration_ns=max(STEP_NS, hot + beside))
        aggregate.add(frame)
        collector.add(frame)
    return diagnose(collector.evidence(aggregate.summary(), RunFacts()))


def test_a_hot_module_is_found_if_both_times_are_certain() -> None:
    """Sixty per cent of the step, four times as long as the next."""
    finding = finding_of(run(60, 15, spread=0.01), "hot-module")
    assert finding is not None
    assert (finding.severity, finding.name, finding.evidence["times_next"]) == (
        "warning",
        "hot",
        pytest.approx(4, abs=0.1),
    )


def test_a_sibling_that_varies_too_much_makes_it_inconclusive() -> None:
    """The mean is four times, but the interval begins below three: another run would differ."""
    finding = finding_of(run(60, 14, spread=0.5), "hot-module")
    assert finding is not None
    assert finding.evidence["times_next"] > 3.3  # three, and the margin around it
    assert finding.severity == "info"


def test_a_module_below_the_bound_is_no_finding() -> None:
    """Twice as long as the next."""
    assert finding_of(run(60, 30, spread=0.01), "hot-module") is None


def test_a_hot_module_beside_one_without_time_is_found() -> None:
    """Nothing is divided by nothing."""
    assert finding_of(run(60, 0, spread=0.01), "hot-module") is not None
