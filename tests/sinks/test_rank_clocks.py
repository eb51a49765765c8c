"""Clocks of hosts: aligned by collectives whose true times are known, with an error that includes the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from autoprof._ranks import CallKey
from autoprof.sinks._rank_timeline import ClockShift, align_clocks

MS = 1_000_000
S = 1_000_000_000
BEGIN = 1_763_640_000 * S
Calls = dict[int, dict[CallKey, int]]


@dataclass(frozen=True)
class Cluster:
    """Clocks with an offset, and the collectives of the ranks on them."""

    offsets: tuple[int, ...]
    seed: int = 0

    def calls(
        self, count: int = 100, work_ns: int = 5 * MS, straggler: int | None = None, missed: float = 0.0
    ) -> Calls:
        """Return when each rank leaves calls that it enters after its own work: when the last rank has come."""
        random = np.random.default_rng(self.seed)
        calls: Calls = {rank: {} for rank in range(len(self.offsets))}
        for step in range(count):
            work = random.exponential(work_ns, len(calls))
            if straggler is not None:
                work[straggler] += 40 * MS
            late = random.exponential(20_000, len(calls)) + (random.random(len(calls)) < 0.05) * 5 * MS
            for rank, held in calls.items():
                if random.random() < missed:
                    continue
                key = (step, "Comm/all_reduce", 0)
                begin = BEGIN + step * 200 * MS + self.offsets[rank]
                left = work.max() + 50_000 + late[rank]
                held[key] = begin + int(left)
        return calls

    def errors(self, shifts: Mapping[int, ClockShift]) -> dict[int, int]:
        """Return the error of each rank's offset."""
        return {rank: abs(shift.offset_ns - self.offsets[rank]) for rank, shift in shifts.items()}


APART = (0, 3 * S, -1_500 * S)


@pytest.mark.parametrize(
    ("calls", "most_ns"),
    [
        ({}, MS // 2), ({"straggler": 1, "work_ns": MS}, MS // 2), ({"straggler": 0}, MS // 2), ({"missed": 0.3}, MS),
        ({"count": 20}, MS), ({"work_ns": 50 * MS}, MS // 2),
    ],
    ids=["usual", "straggler", "slow reference", "missed calls", "few calls", "uneven work"],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_the_stated_error_includes_the_truth(seed: int, calls: dict[str, Any], most_ns: int) -> None:
    """Clocks that are minutes apart agree within what is stated, whichever rank is late and whatever is missing."""
    cluster = Cluster(APART, seed)
    shifts = align_clocks(cluster.calls(**calls), {})
    assert shifts[0] == ClockShift()
    for rank, error_ns in cluster.errors(shifts).items():
        assert error_ns <= (shifts[rank].error_ns or 0) < most_ns


def test_ranks_of_one_host_have_one_clock() -> None:
    """They are moved together, and those of the first host not at all."""
    cluster = Cluster((0, 0, 2 * S, 2 * S))
    shifts = align_clocks(cluster.calls(), {0: "a", 1: "a", 2: "b", 3: "b"})
    assert shifts[0] == shifts[1] == ClockShift()
    assert shifts[2] == shifts[3]
    assert cluster.errors(shifts)[3] <= (shifts[3].error_ns or 0) < MS // 2


@pytest.mark.parametrize("count", [0, 15])
def test_a_clock_with_few_common_calls_has_an_unknown_error(count: int) -> None:
    """Its difference is unknown, which is not zero."""
    assert align_clocks(Cluster(APART).calls(count), {})[2] == ClockShift(error_ns=None)


def test_calls_that_contradict_each_other_widen_the_error() -> None:
    """The few calls of another group under the same key do not move the clock; unrelated calls give a large error."""
    cluster = Cluster((0, S))
    calls = cluster.calls()
    for key in list(calls[1])[::20]:
        calls[1][key] -= 60 * MS
    shifts = align_clocks(calls, {})
    assert cluster.errors(shifts)[1] <= (shifts[1].error_ns or 0) < MS
    random = np.random.default_rng(3)
    for key in calls[1]:
        calls[1][key] += int(random.integers(0, 100 * S))
    assert (align_clocks(calls, {})[1].error_ns or 0) > 10 * S
