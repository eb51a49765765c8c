"""Where a cost or a growth is known as an interval, all of it decides, not its middle."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from evidence_builders import MS, evidence_of, finding_of, found

from autoprof._session.governor import Governor
from autoprof.diagnose import EvidenceCollector, RunFacts, diagnose
from autoprof.diagnose.rules import overhead
from autoprof.summary import Finding, PairedCost
from autoprof.testing import make_frame

STEP = {"forward": 50.0, "backward": 50.0}
MIB = 2**20


def pairs(low: float, cost: float, high: float) -> PairedCost:
    """Return the overhead that pairs show of a run with half of its steps recorded, as fractions of its time."""
    low, cost, high = (2 * share / (1 - share) for share in (low, cost, high))
    return PairedCost(cost, low, high, 40, 0.5)


def cost_of(own: float, paired: PairedCost | None, steps: int = 600) -> Finding | None:
    """Return the finding for this overhead by the own clock and by pairs; the budget is 1 %."""
    changes = {"overhead": own, "paired": paired, "unsampled_steps": steps, "facts": RunFacts(budget=0.01)}
    return finding_of(diagnose(evidence_of(STEP, repeat=steps, **changes)), "overhead")


def test_overhead_that_only_pairs_show_is_a_finding() -> None:
    """0.4 % by the own clock, but at least 2 % by comparison: no clock shows the effect of cold caches."""
    finding = cost_of(0.004, pairs(0.02, 0.025, 0.03))
    assert finding is not None
    assert finding.severity == "warning"
    assert "at least 2.0 %" in finding.why
    assert (finding.evidence["share_low"], finding.evidence["share_high"]) == (0.02, 0.03)


def test_pairs_around_the_budget_are_inconclusive() -> None:
    """The budget lies within the interval, however the middle compares with it."""
    for middle in (0.007, 0.014):
        finding = cost_of(0.004, pairs(0.005, middle, 0.02))
        assert finding is not None
        assert finding.severity == "info"
        assert "inconclusive: 0.5 % to 2.0 %" in finding.evidence["missing"]


def test_pairs_below_the_budget_are_silent() -> None:
    """All of the interval, and the own clock too."""
    assert cost_of(0.004, pairs(0.003, 0.005, 0.008)) is None


def test_the_own_clock_is_a_lower_bound_of_the_overhead() -> None:
    """They see recorded steps only: a sink that is slow in the gaps is on the own clock alone."""
    finding = cost_of(0.05, pairs(0.003, 0.005, 0.008))
    assert finding is not None
    assert finding.severity == "warning"


@pytest.mark.parametrize("hidden", [1.0, 2.0, 3.5])
def test_a_governor_that_pays_for_hidden_overhead_gets_no_finding(hidden: float) -> None:
    """A step costs up to 3.5 times the time on the own clock. Pairs show it, and then it is paid back."""
    draw, governor, base = random.Random(0), Governor(0.01), evidence_of(STEP, repeat=50, facts=RunFacts(budget=0.01))
    recorded = left = own = observed = burst = 0
    while recorded + left < 40_000:
        step_ns = round(100 * MS * draw.uniform(0.97, 1.03))
        recorded, burst, own, observed = recorded + 1, burst + 1, own + MS, observed + step_ns + round(hidden * MS)
        gap = governor.after_recorded(step_ns + round(hidden * MS), MS)
        changes = {"steps": recorded, "unsampled_steps": left, "overhead": own / observed, "paired": governor.paired()}
        said = overhead.judge(replace(base, summary=replace(base.summary, **changes)))
        assert said is None or said.severity == "info", (recorded, left, said.why)
        if gap:
            first = min(governor.comparable, gap)
            governor.compare(first, round(sum(100 * MS * draw.uniform(0.97, 1.03) for _ in range(first))))
            governor.after_gap(gap, gap * 100 * MS)
            left, observed = left + gap, observed + gap * 100 * MS


def growth_of(*levels: float) -> Finding | None:
    """Return the finding for memory at these levels, in MiB, one for each step."""
    seen = evidence_of(STEP, repeat=len(levels))
    readings = tuple((step, round(level * MIB)) for step, level in enumerate(levels, 1))
    return finding_of(diagnose(replace(seen, memory=readings, memory_kind="rss_bytes")), "memory-growth")


def test_readings_that_only_scatter_are_no_growth() -> None:
    """The least ones of the thirds happen to rise by 30 MiB; the slope through all is as likely flat."""
    finding = growth_of(470, 400, 455, 440, 468, 415, 463, 421, 445, 430, 436, 450)
    assert finding is not None
    assert finding.severity == "info"
    assert "inconclusive" in finding.evidence["missing"]


def test_a_leak_among_readings_that_scatter_is_growth() -> None:
    """5 MiB a step, up to 20 MiB up and down: the whole interval of the slope is above the bound."""
    draw = random.Random(1)
    finding = growth_of(*(400 + 5 * step + draw.uniform(-20, 20) for step in range(60)))
    assert finding is not None
    assert finding.severity == "warning"
    low, high = finding.evidence["bytes_per_step_low"], finding.evidence["bytes_per_step_high"]
    assert low < 5 * MIB < high
    assert high - low < 1.2 * MIB


def test_scattered_readings_never_get_a_finding_by_chance() -> None:
    """A level of 400 MiB, 40 MiB up or down at random, from 12 readings to 120: not one is called growth."""
    draw = random.Random(2)
    said = [growth_of(*(draw.gauss(400, 40) for _ in range(count))) for count in range(12, 121) for _ in range(3)]
    assert not [finding for finding in said if finding is not None and finding.severity != "info"]


def test_growth_that_has_ceased_is_no_leak() -> None:
    """Memory rises over two thirds of the run, and then no more: what filled is full."""
    assert growth_of(*(400 + 2 * min(step, 66) for step in range(100))) is None


def growth_under(peak: Callable[[int], float]) -> Finding | None:
    """Return the finding for memory that grows by 1 MiB a step from 400 MiB, below these peaks."""
    collector = EvidenceCollector()
    for step in range(90):
        memory = {"rss_bytes": (400 + step) * MIB, "rss_peak_bytes": round(peak(step) * MIB)}
        collector.add(make_frame([], step=step + 1, duration_ns=100 * MS, memory=memory))
    return finding_of(diagnose(collector.evidence(evidence_of(STEP, repeat=20).summary, RunFacts())), "memory-growth")


def test_a_leak_raises_the_peak_as_well() -> None:
    """A finding."""
    finding = growth_under(lambda step: 500 + step)
    assert finding is not None
    assert finding.severity == "warning"


def test_resident_memory_that_grows_below_a_constant_peak_is_inconclusive() -> None:
    """A list of 640,000 tuples is built and dropped in each step: the allocators keep more of it from step to step."""
    finding = growth_under(lambda step: 500 + (step > 40))
    assert finding is not None
    assert finding.severity == "info"
    assert "the process's peak only by 1.0 MiB" in finding.evidence["missing"]


def test_a_step_in_the_middle_is_no_slope() -> None:
    """A second model is loaded half-way through: a plateau, then another."""
    assert found_growth(*[400.0] * 30, *[600.0] * 30) == []


def found_growth(*levels: float) -> list[str]:
    """Return the rules that found something in these levels."""
    seen = evidence_of(STEP, repeat=len(levels))
    readings = tuple((step, round(level * MIB)) for step, level in enumerate(levels, 1))
    return found(diagnose(replace(seen, memory=readings, memory_kind="rss_bytes")))
