"""Clocks of hosts: aligned by collectives whose true times are known, with an error that includes the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from autoprof._ranks import CallKey, CollectiveCall
from autoprof.sinks._rank_clocks import ClockShift, align_clocks

MS = 1_000_000
S = 1_000_000_000
BEGIN = 1_763_640_000 * S
Calls = dict[int, dict[CallKey, CollectiveCall]]


@dataclass(frozen=True)
class Cluster:
    """Clocks with an offset and a drift, and the collectives of the ranks on them."""

    offsets: tuple[int, ...]
    drifts: tuple[float, ...]
    seed: int = 0

    def read(self, rank: int, true_ns: float) -> int:
        """Return what the rank's clock shows at a true time since the beginning."""
        return BEGIN + round(true_ns * (1 + self.drifts[rank])) + self.offsets[rank]

    def calls(
        self,
        count: int = 100,
        every_ns: int = 200 * MS,
        work_ns: int = 5 * MS,
        straggler: int | None = None,
        missed: float = 0.0,
        transfer_ns: int = 50_000,
    ) -> Calls:
        """Return calls that every rank enters after its own work, and leaves when the last one has come."""
        random = np.random.default_rng(self.seed)
        calls: Calls = {rank: {} for rank in range(len(self.offsets))}
        for step in range(count):
            work = random.exponential(work_ns, len(calls))
            if straggler is not None:
                work[straggler] += 40 * MS
            released = step * every_ns + work.max() + transfer_ns
            late = random.exponential(20_000, len(calls)) + (random.random(len(calls)) < 0.05) * 5 * MS
            for rank, held in calls.items():
                if random.random() < missed:
                    continue
                key = (step, "Comm/all_reduce", 0)
                entered, left = step * every_ns + work[rank], released + late[rank]
                held[key] = CollectiveCall(key, 0, self.read(rank, entered), self.read(rank, left))
        return calls

    def errors(self, shifts: Mapping[int, ClockShift], until_ns: int = 20 * S) -> dict[int, int]:
        """Return the largest error of each rank's corrected time."""
        times = range(0, until_ns, until_ns // 10)
        return {
            rank: max(abs(shift.correct(self.read(rank, at)) - self.read(0, at)) for at in times)
            for rank, shift in shifts.items()
        }


APART = Cluster((0, 3 * S, -1_500 * S), (0.0, 50e-6, -50e-6))


def test_offsets_of_seconds_and_drifts_are_found_within_the_stated_error() -> None:
    """Three clocks that are minutes apart and drift by 50 ppm agree to a fraction of a millisecond."""
    shifts = align_clocks(APART.calls(), {})
    assert shifts[0] == ClockShift(0)
    for rank, error_ns in APART.errors(shifts).items():
        stated = shifts[rank].error_ns
        assert stated is not None
        assert error_ns <= stated
        assert stated < MS // 2
    assert shifts[1].drift * 1e6 == pytest.approx(50, abs=10)
    assert shifts[2].drift * 1e6 == pytest.approx(-50, abs=10)


@pytest.mark.parametrize(
    "calls",
    [
        lambda cluster: cluster.calls(straggler=1),
        lambda cluster: cluster.calls(straggler=0),
        lambda cluster: cluster.calls(missed=0.3),
        lambda cluster: cluster.calls(count=20, every_ns=S),
        lambda cluster: cluster.calls(count=3, every_ns=10 * S),
        lambda cluster: cluster.calls(work_ns=50 * MS),
    ],
    ids=["straggler", "slow reference", "missed calls", "few calls", "three calls", "uneven work"],
)
@pytest.mark.parametrize("seed", range(5))
def test_the_stated_error_includes_the_truth(seed: int, calls: Callable[[Cluster], Calls]) -> None:
    """Whoever is late, whatever is missing: what is stated is not exceeded."""
    cluster = Cluster(APART.offsets, APART.drifts, seed)
    shifts = align_clocks(calls(cluster), {})
    errors = cluster.errors(shifts)
    assert all(errors[rank] <= (shift.error_ns or 0) for rank, shift in shifts.items())


def test_a_rank_that_is_always_last_is_aligned_by_the_ends_of_its_calls() -> None:
    """The others wait 40 ms for it; all leave within 20 µs."""
    cluster = Cluster((0, S), (0.0, 0.0))
    shift = align_clocks(cluster.calls(straggler=1, work_ns=MS), {})[1]
    assert shift.error_ns is not None
    assert cluster.errors({1: shift})[1] <= shift.error_ns < MS


def test_one_call_is_enough_for_an_offset() -> None:
    """A single barrier bounds the difference of two clocks by its length."""
    cluster = Cluster((0, 7 * S), (0.0, 0.0))
    shift = align_clocks(cluster.calls(count=1), {})[1]
    assert cluster.errors({1: shift}, 10)[1] <= (shift.error_ns or 0) < 20 * MS


def test_a_small_drift_over_a_short_time_is_none() -> None:
    """Over two seconds nobody can tell a drift of 5 ppm from none."""
    shift = align_clocks(Cluster((0, S), (0.0, 5e-6)).calls(count=10), {})[1]
    assert shift.drift == 0.0


def test_ranks_of_one_host_are_not_corrected() -> None:
    """They have one clock, and an estimate of nothing would only move them apart."""
    cluster = Cluster((0, 0, 2 * S, 2 * S), (0.0,) * 4)
    shifts = align_clocks(cluster.calls(), {0: "a", 1: "a", 2: "b", 3: "b"})
    assert (shifts[1].offset_ns, shifts[1].error_ns) == (0, 0)
    assert shifts[2] == shifts[3]
    assert cluster.errors(shifts)[3] <= (shifts[3].error_ns or 0) < MS // 2


def test_a_clock_is_aligned_through_another_one() -> None:
    """Rank 2 never meets rank 0, but rank 1 meets both."""
    calls = APART.calls(count=200)
    for key in list(calls[0]):
        del calls[0 if key[0] % 2 else 2][key]
    shifts = align_clocks(calls, {})
    assert APART.errors(shifts)[2] <= (shifts[2].error_ns or 0)
    assert (shifts[2].error_ns or 0) > (shifts[1].error_ns or 0)


def test_a_clock_that_cannot_be_aligned_directly_leads_to_no_other() -> None:
    """Rank 1 contradicts rank 0. Rank 2 meets rank 1 in most of its calls, and rank 3, which is aligned, in fewer."""
    cluster = Cluster((0, S, 2 * S, 3 * S), (0.0,) * 4)
    random = np.random.default_rng(3)
    calls = cluster.calls(count=30, every_ns=S)
    meetings = [(0, 1)] * 6 + [(1, 2)] * 5 + [(2, 3)] * 2 + [(0, 3)] * 2
    for key in list(calls[0]):
        meeting = meetings[key[0] % len(meetings)]
        for rank in {0, 1, 2, 3}.difference(meeting):
            del calls[rank][key]
        if meeting == (0, 1):
            at = BEGIN + int(random.integers(0, 30 * S))
            calls[1][key] = CollectiveCall(key, 0, at, at + MS)
    shifts = align_clocks(calls, {})
    errors = cluster.errors(shifts)
    assert all(errors[rank] <= (shifts[rank].error_ns or 0) for rank in (1, 2, 3))


def test_a_clock_without_a_common_call_is_left_alone() -> None:
    """Its error is unknown, which is not zero."""
    calls = APART.calls()
    calls[2].clear()
    assert align_clocks(calls, {})[2] == ClockShift(0, error_ns=None)


def test_calls_that_contradict_each_other_widen_the_error() -> None:
    """A few calls of different groups under one key: the rest decides, and the error includes them."""
    cluster = Cluster((0, S), (0.0, 0.0))
    calls = cluster.calls()
    for key in list(calls[1])[::20]:
        call = calls[1][key]
        calls[1][key] = call._replace(start_ns=call.start_ns - 60 * MS, end_ns=call.end_ns - 60 * MS)
    shift = align_clocks(calls, {})[1]
    assert cluster.errors({1: shift})[1] <= (shift.error_ns or 0)
    assert cluster.errors({1: shift})[1] < MS // 2


def test_calls_that_have_nothing_in_common_give_no_alignment() -> None:
    """Few calls at unrelated times are no evidence."""
    random = np.random.default_rng(3)
    calls: Calls = {0: {}, 1: {}}
    for step in range(10):
        for rank in calls:
            at = BEGIN + int(random.integers(0, 100 * S))
            key = (step, "Comm/barrier", 0)
            calls[rank][key] = CollectiveCall(key, 0, at, at + MS)
    assert align_clocks(calls, {})[1].error_ns is None


def test_nothing_to_align_is_nothing() -> None:
    """A run without ranks has no clocks."""
    assert align_clocks({}, {}) == {}
