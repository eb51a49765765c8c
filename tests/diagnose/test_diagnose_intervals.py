"""Where a growth is known as an interval, all of it decides, not its middle."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from evidence_builders import MS, evidence_of, finding_of

from autoprof.diagnose import EvidenceCollector, RunFacts, diagnose
from autoprof.testing import make_frame

STEP = {"forward": 50.0, "backward": 50.0}
MIB = 2**20


def growth_of(*levels: float, steps: Sequence[int] = ()) -> Any:
    """Return the finding for memory at these levels, in MiB, one for each step or at these steps."""
    seen = evidence_of(STEP, repeat=len(levels))
    readings = tuple((step, round(level * MIB)) for step, level in zip(steps or count(1), levels, strict=False))
    return finding_of(diagnose(replace(seen, memory=readings, memory_kind="rss_bytes")), "memory-growth")


def test_readings_that_only_scatter_are_no_growth() -> None:
    """The least ones of the thirds happen to rise by 30 MiB; the slope through all is as likely flat."""
    finding = growth_of(470, 400, 455, 440, 468, 415, 463, 421, 445, 430, 436, 450)
    assert finding.severity == "info"
    assert "inconclusive" in finding.evidence["missing"]


def test_a_leak_among_readings_that_scatter_is_growth() -> None:
    """5 MiB a step, up to 20 MiB up and down: the whole interval of the slope is above the bound."""
    draw = random.Random(1)
    finding = growth_of(*(400 + 5 * step + draw.uniform(-20, 20) for step in range(60)))
    assert finding.severity == "warning"
    low, high = finding.evidence["bytes_per_step_low"], finding.evidence["bytes_per_step_high"]
    assert low < 5 * MIB < high
    assert high - low < 1.2 * MIB


def test_growth_that_has_ceased_is_no_leak() -> None:
    """Memory rises over two thirds of the run, and then no more: what filled is full."""
    assert growth_of(*(400 + 2 * min(step, 66) for step in range(100))) is None


def test_a_leak_is_judged_over_the_whole_run_where_readings_are_dense_at_its_begin() -> None:
    """0.6 MiB a step in 140 steps: the first 40 are recorded, then every eighth."""
    steps = [*range(1, 41), *range(48, 141, 8)]
    finding = growth_of(*(420 + 0.6 * step for step in steps), steps=steps)
    assert finding.severity == "warning"
    assert finding.evidence["last_bytes"] - finding.evidence["first_bytes"] > 50 * MIB


def growth_under(peak: Callable[[int], float]) -> Any:
    """Return the finding for memory that grows by 1 MiB a step from 400 MiB, below these peaks."""
    collector = EvidenceCollector()
    for step in range(90):
        memory = {"rss_bytes": (400 + step) * MIB, "rss_peak_bytes": round(peak(step) * MIB)}
        collector.add(make_frame([], step=step + 1, duration_ns=100 * MS, memory=memory))
    return finding_of(diagnose(collector.evidence(evidence_of(STEP, repeat=20).summary, RunFacts())), "memory-growth")


def test_a_leak_raises_the_peak_as_well() -> None:
    """A finding."""
    finding = growth_under(lambda step: 500 + step)
    assert finding.severity == "warning"


def test_resident_memory_that_grows_below_a_constant_peak_is_inconclusive() -> None:
    """A list of 640,000 tuples is built and dropped in each step: the allocators keep more of it from step to step."""
    finding = growth_under(lambda step: 500 + (step > 40))
    assert finding.severity == "info"
    assert "the process's peak only by 1.0 MiB" in finding.evidence["missing"]
