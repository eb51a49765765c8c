"""All ranks record the same steps, chosen by their numbers; each rank's governor keeps its own budget."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from autoprof._session.common_steps import (
    BLOCK_STEPS,
    CONTROL_SHARE,
    CONTROL_STEPS,
    START_BLOCKS,
    CommonSteps,
    is_recorded,
)
from autoprof._session.governor import Governor
from autoprof._stats.paired_steps import MIN_PAIRS, START_STEPS

MS = 1_000_000


@dataclass
class Rank:
    """A rank of a run that never was: its governor, what it took bare, what recording added, the steps recorded."""

    governor: Governor
    step_ns: int
    cost_ns: int
    toggle_ns: int = 100_000
    bare_ns: int = 0
    spent_ns: int = 0
    recorded: list[int] = field(default_factory=list)
    draw: random.Random = field(default_factory=lambda: random.Random(3))

    def train(self, until: int) -> Rank:
        """Train up to this step, or a little further."""
        step = self.recorded[-1] + 1 if self.recorded else 1
        while step <= until:
            bare, cost = (round(ns * self.draw.lognormvariate(0, 0.03)) for ns in (self.step_ns, self.cost_ns))
            self.recorded.append(step)
            self.bare_ns += bare
            self.spent_ns += cost
            gap = self.governor.after_recorded(bare + cost, cost, self.toggle_ns, step=step)
            if gap:
                lengths = [round(self.step_ns * self.draw.lognormvariate(0, 0.03)) for _ in range(min(gap, 16))]
                elapsed = round(sum(lengths) / len(lengths) * gap)
                first = min(self.governor.comparable, len(lengths))
                self.governor.compare(first, sum(lengths[:first]))
                self.governor.after_gap(gap, elapsed)
                self.bare_ns += elapsed
                self.spent_ns += self.toggle_ns
            step += gap + 1
        return self


def make_rank(step_ns: int, cost_ns: int, budget: float | None = 0.01, every: int = 1) -> Rank:
    """Return a rank that follows the common steps."""
    governor = Governor(budget)
    governor.follow(CommonSteps(every))
    return Rank(governor, step_ns, cost_ns)


def test_the_steps_of_a_lower_rate_are_among_those_of_a_higher_one() -> None:
    """Ranks whose budgets pay for different rates share the steps of the lowest."""
    common = CommonSteps()
    chosen = [{step for step in range(1, 50_000) if common.records(step, rate)} for rate in (0.001, 0.01, 0.3, 0.7, 1)]
    assert all(low < high for low, high in pairwise(chosen))


@pytest.mark.parametrize("rate", [1 / 300, 1 / 30, 1 / 3, 0.9])
def test_a_rate_gives_that_part_of_the_blocks(rate: float) -> None:
    """A third gives a third, over any stretch of the run."""
    for first in (0, 1_000, 777_777):
        blocks = range(first, first + round(100 / rate))
        assert sum(is_recorded(block, rate) for block in blocks) == pytest.approx(100, abs=4)


@pytest.mark.parametrize("period", [2, 3, 7, 12, 13, 60, 72, 100, 144])
def test_no_phase_of_a_period_is_always_missed(period: int) -> None:
    """What happens each so many steps (saving, a long batch) is recorded as often as the rate promises."""
    common, met = CommonSteps(), [0] * period
    steps = 20_000 * period
    step = 1
    while step < steps:
        met[step % period] += 1
        step += common.skip(step, 0.05) + 1
    expected = sum(met) / period
    assert all(0.6 * expected <= count <= 1.4 * expected for count in met)


@pytest.mark.parametrize("every", [1, 3, 10])
@pytest.mark.parametrize("rate", [0.01, 0.4, 1.0])
def test_a_gap_ends_before_the_next_recorded_step(rate: float, every: int) -> None:
    """From any step on, also from one that was reserved for another purpose."""
    common = CommonSteps(every)
    recorded = [step for step in range(1, 20_000) if common.records(step, rate)]
    for step in (*range(1, 200), 5_003):
        following = next(one for one in recorded if one > step)
        assert step + common.skip(step, rate) + 1 == following


def test_controls_are_the_same_steps_at_every_rate() -> None:
    """Unsampled neighbours for the pairs: enough of them in the first steps, fewer later."""
    common = CommonSteps()
    start = BLOCK_STEPS * START_BLOCKS
    left_out = [step for step in range(1, start + 1) if not common.records(step, 1.0)]
    assert len(left_out) == MIN_PAIRS * CONTROL_STEPS
    later = [step for step in range(10_001, 20_001) if not common.records(step, 1.0)]
    assert len(later) == pytest.approx(10_000 * CONTROL_SHARE * CONTROL_STEPS / BLOCK_STEPS, rel=0.02)


def test_a_short_run_is_recorded_without_a_gap() -> None:
    """An event of a run of 90 steps is in a recorded step."""
    common = CommonSteps()
    assert all(common.records(step, 1.0) for step in range(1, 97))


@pytest.mark.parametrize("step_ns", [1 * MS, 10 * MS, 100 * MS, 2_000 * MS])
@pytest.mark.parametrize("cost_ns", [60_000, 300_000, 3 * MS])
def test_the_budget_holds_on_every_rank(step_ns: int, cost_ns: int) -> None:
    """Once the loan is paid back, the run as a whole is within its budget."""
    rank = make_rank(step_ns, cost_ns).train(60_000)
    assert rank.spent_ns <= 1.05 * 0.01 * max(rank.bare_ns, 30_000 * MS)


@pytest.mark.parametrize("cost_ns", [100_000, 1 * MS])
def test_what_the_budget_pays_for_is_recorded(cost_ns: int) -> None:
    """At least two thirds of the budget's spendable part are spent, and all of it where every step is affordable."""
    rank = make_rank(10 * MS, cost_ns).train(100_000)
    assert rank.spent_ns >= 2 / 3 * 0.006 * rank.bare_ns
    cheap = make_rank(100 * MS, 10_000).train(5_000)
    assert len(cheap.recorded) >= 0.95 * 5_000


def test_ranks_with_other_costs_share_most_steps_of_the_one_that_affords_least() -> None:
    """Without a message: ranks of other speed, cost and noise."""
    ranks = [make_rank(10 * MS, 100_000 * factor) for factor in (1, 2, 4)]
    for seed, rank in enumerate(ranks):
        rank.draw = random.Random(seed)
        rank.train(60_000)
    late = [{step for step in rank.recorded if step > 10_000} for rank in ranks]
    assert len(set.intersection(*late)) >= 0.8 * min(map(len, late))


def test_all_ranks_record_the_first_steps() -> None:
    """The run of 60 steps: every step, on ranks of other cost."""
    first, second = (set(make_rank(20 * MS, cost).train(60).recorded) for cost in (200_000, 3 * MS))
    assert first == second == {*range(1, 61)}


def test_the_agreed_rate_makes_the_steps_the_same_and_spends_no_more() -> None:
    """A rank that affords more leaves out what the others do not record; its credit does not pile up."""
    slow, fast = make_rank(10 * MS, 1 * MS), make_rank(10 * MS, 100_000)
    for until in range(1_000, 60_001, 1_000):
        slow.train(until)
        fast.governor.agreed_rate = slow.governor.affordable_rate
        fast.train(until)
    late = [{step for step in rank.recorded if step > 20_000} for rank in (slow, fast)]
    assert len(late[0] & late[1]) >= 0.7 * len(late[1])
    assert len(late[1]) <= 1.3 * len(late[0])
    assert fast.governor.affordable_rate > 3 * slow.governor.affordable_rate


def test_with_every_only_each_nth_step_is_recorded() -> None:
    """The same steps on all ranks, and within the budget."""
    rank = make_rank(10 * MS, 500_000, every=5).train(50_000)
    assert {step % 5 for step in rank.recorded} == {1}
    assert rank.spent_ns <= 1.05 * 0.01 * rank.bare_ns


def test_pairs_are_collected_from_common_steps() -> None:
    """The cost of recording by pairs needs unsampled steps beside recorded ones."""
    rank = make_rank(10 * MS, 500_000).train(START_STEPS)
    paired = rank.governor.paired()
    assert paired is not None
    assert paired.cost == pytest.approx(0.05, abs=0.02)


def test_without_a_budget_nothing_is_left_out() -> None:
    """Every rank records every step: they are common already."""
    rank = make_rank(10 * MS, 5 * MS, budget=None).train(500)
    assert rank.recorded == list(range(1, 501))
