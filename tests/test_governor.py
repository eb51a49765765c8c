"""The governor keeps what recording costs under its budget, whatever a step costs, and says what it left out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from autoprof._session.governor import (
    BURST_STEPS,
    CONTROL_STEPS,
    FIRST_LOAN_S,
    MAX_EXCESS,
    MAX_LOAN_S,
    MAX_SAMPLE_INTERVAL,
    OTHER_THREADS_LOAN_NS,
    OTHER_THREADS_SHARE,
    SPENDABLE_SHARE,
    STEPS_IF_BUSY,
    STEPS_UNTIL_LENGTH,
    Governor,
)
from autoprof._stats.paired_steps import CONTROL_INTERVAL, FIRST_CONTROL_INTERVAL, FIRST_STEPS, MIN_PAIRS

MS = 1_000_000
BUDGETS = (0.005, 0.01, 0.05)
STEPS_NS = (300_000, 1 * MS, 10 * MS, 100 * MS, 10_000 * MS)


@dataclass
class Run:
    """A training run that never was: what it took bare, what recording added, and where the governor left gaps."""

    bare_ns: int = 0
    cost_ns: int = 0
    recorded: list[int] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    so_far: list[tuple[int, int]] = field(default_factory=list)
    """The bare time and the cost after each recorded step, with its hooks."""

    @property
    def overhead(self) -> float:
        """What recording cost as a fraction of the bare run."""
        return self.cost_ns / self.bare_ns


def leave_alone(governor: Governor, lengths_ns: list[int]) -> int:
    """Let a gap of these steps pass, compared as a session does; return its length."""
    first = min(governor.comparable, len(lengths_ns))
    governor.compare(first, sum(lengths_ns[:first]))
    governor.after_gap(len(lengths_ns), sum(lengths_ns))
    return sum(lengths_ns)


def run(governor: Governor, steps: int, step_ns: int, costs_ns: list[int], toggle_ns: int, noise: float = 0.03) -> Run:
    """Let a governor lead a run of steps of this length, with this cost a level and this price of switching."""
    draw, done, at = random.Random(7), Run(), 0
    while at < steps:
        bare, cost = (round(ns * draw.lognormvariate(0, noise)) for ns in (step_ns, costs_ns[governor.level]))
        done.recorded.append(at)
        done.levels.append(governor.level)
        done.bare_ns += bare
        done.cost_ns += cost
        at += 1
        gap = governor.after_recorded(bare + cost, cost, toggle_ns)
        if gap:
            elapsed = leave_alone(governor, [round(step_ns * draw.lognormvariate(0, noise)) for _ in range(gap)])
            done.gaps.append(gap)
            done.bare_ns += elapsed
            done.cost_ns += toggle_ns
            at += gap
        done.so_far.append((done.bare_ns, done.cost_ns))
    return done


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("step_ns", STEPS_NS)
def test_a_run_costs_at_most_its_budget(step_ns: int, budget: float) -> None:
    """From 0.3 ms to 10 s a step, over 20,000 steps, with hooks that cost 0.12 ms a step and 0.15 ms to switch."""
    done = run(Governor(budget), 20_000, step_ns, [120_000], 150_000)
    assert done.overhead <= 1.05 * budget


@pytest.mark.parametrize("cost_share", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("step_ns", [1 * MS, 5 * MS, 30 * MS, 300 * MS])
@pytest.mark.parametrize("steps", [60, 120, 200])
def test_most_steps_of_a_short_run_are_recorded(steps: int, step_ns: int, cost_share: float) -> None:
    """The start is on loan: all but the controls, as long as half a minute, and twelve seconds at first, can pay."""
    done = run(Governor(0.01), steps, step_ns, [round(cost_share * step_ns)], 100_000)
    most_s = min(FIRST_LOAN_S + step_ns * steps / 10**9, MAX_LOAN_S)
    if cost_share * step_ns * steps < most_s * 0.005 * 1_000 * MS:
        assert set(done.gaps) <= {CONTROL_STEPS}
        assert len(done.recorded) >= 0.9 * steps


@pytest.mark.parametrize(("step_ns", "cost_ns"), [(2 * MS, 600_000), (10 * MS, 1 * MS)])
def test_a_run_of_twelve_seconds_is_within_its_budget(step_ns: int, cost_ns: int) -> None:
    """The first steps may borrow less where they are few: 1.7 % were spent on steps of 10 ms."""
    done = run(Governor(0.01), 12_000 * MS // step_ns, step_ns, [cost_ns], 300_000)
    assert done.overhead <= 0.01
    assert len(done.recorded) >= 90


@pytest.mark.parametrize("step_ns", STEPS_NS)
def test_the_loan_is_paid_back_within_half_a_minute(step_ns: int) -> None:
    """From then on the whole run is within its budget; steps that cost a third of their length are the worst case."""
    steps = max(40_000 * MS // step_ns, 40)
    done = run(Governor(0.01), steps, step_ns, [step_ns // 3], 50_000)
    assert done.cost_ns <= 1.05 * 0.01 * max(done.bare_ns, FIRST_STEPS * step_ns / 3 / 0.006)


# Short runs: the first steps of each level are chosen by what they are expected to cost.


def chain_costs(modules: int) -> list[int]:
    """Return the cost of a step of a chain of layers, with all of them recorded and with the model alone."""
    return [300_000 + 13_000 * modules, 300_000]


@pytest.mark.parametrize("seconds", [1, 5, 12, 60])
@pytest.mark.parametrize("modules", [10, 100, 300, 1_000, 3_000, 10_000])
def test_a_run_of_any_length_costs_at_most_its_loan_and_its_budget(modules: int, seconds: int) -> None:
    """Layers of 25 us each: up to 10,000 in steps of 0.25 s, of which one with all of them costs 0.13 s.

    The steps of a burst that has begun are recorded.
    """
    governor, step_ns = Governor(0.01, levels=2), 25_000 * modules
    costs = chain_costs(modules)
    governor.expect(costs)
    done = run(governor, max(seconds * 1_000 * MS // step_ns, 4), step_ns, costs, 5_000 * modules // 10)
    loan_ns = FIRST_LOAN_S * SPENDABLE_SHARE * 0.01 * 1_000 * MS
    loans = MAX_EXCESS if FIRST_STEPS * costs[0] > loan_ns and 0 in done.levels[:FIRST_STEPS] else 1.0
    for bare_ns, cost_ns in done.so_far:
        assert cost_ns <= loans * loan_ns + 0.0105 * bare_ns + BURST_STEPS * costs[done.levels[0]]


def test_a_run_begins_with_the_finest_level_of_which_the_loan_pays_the_first_steps() -> None:
    """Twenty steps of 50 ms are more than the loan, and twenty of 6 ms a report that is worth twice the loan."""
    governor = Governor(0.01, levels=3)
    governor.expect([50 * MS, 6 * MS, 0])
    assert governor.level == 1


def test_a_run_begins_with_the_coarsest_level_where_no_other_is_affordable() -> None:
    """It has a verdict all the same: its first steps are recorded, too."""
    governor = Governor(0.01, levels=3)
    governor.expect([50 * MS, 40 * MS, 30 * MS])
    assert governor.level == 2
    assert [governor.after_recorded(MS + 30_000, 30_000) for _ in range(FIRST_STEPS)] == [0] * FIRST_STEPS
    assert governor.level == 2


def test_without_a_budget_nothing_is_expected_to_cost_too_much() -> None:
    """``budget: null`` records every module from the first step on."""
    governor = Governor(None, levels=2)
    governor.expect([10**12, 0])
    assert governor.level == 0


def test_long_steps_pay_for_modules_once_their_length_is_known() -> None:
    """Twenty steps of 2 s have a budget of 400 ms: all modules are recorded from the fourth step on, twenty times."""
    governor = Governor(0.01, levels=2)
    governor.expect([12 * MS, 0])
    levels = []
    for _ in range(STEPS_UNTIL_LENGTH + FIRST_STEPS - 1):
        levels.append(governor.level)
        assert governor.after_recorded(2_000 * MS, 12 * MS if governor.level == 0 else 0) == 0
    assert levels == [1] * STEPS_UNTIL_LENGTH + [0] * (FIRST_STEPS - 1)


def test_a_first_step_that_takes_long_says_nothing_about_the_others() -> None:
    """It loads libraries and allocates: the shortest of the first three steps is the length of a step."""
    governor = Governor(0.01, levels=2)
    governor.expect([12 * MS, 0])
    for step_ns in (60_000 * MS, 60_000 * MS, 20 * MS, 20 * MS):
        governor.after_recorded(step_ns, 0)
    assert governor.level == 1


def test_a_level_that_costs_more_than_expected_is_left_in_its_first_steps() -> None:
    """Modules that are called a hundred times a step; the next level has twenty steps of its own."""
    for cost_ns, steps in ((15 * MS, STEPS_IF_BUSY), (60 * MS, STEPS_UNTIL_LENGTH)):
        governor = Governor(0.01, levels=2)
        governor.expect([MS, 0])
        levels = [governor.level]
        while not governor.after_recorded(20 * MS + cost_ns, cost_ns if governor.level == 0 else 10_000):
            levels.append(governor.level)
        assert levels == [0] * steps + [1] * FIRST_STEPS


def test_a_machine_that_is_busy_in_the_first_steps_drops_no_modules() -> None:
    """Interrupted, each of three steps of a vision transformer cost 15 ms where 1.6 were expected, and 3 later."""
    governor = Governor(0.01, levels=2)
    governor.expect([1_600_000, 20_000])
    for cost_ns in (40 * MS, 15 * MS, 18 * MS, *[3 * MS] * 20):
        governor.after_recorded(220 * MS + cost_ns, cost_ns)
        assert governor.level == 0


def test_modules_that_were_dropped_in_the_first_steps_come_back_by_their_lowest_cost() -> None:
    """The first step counts FLOPs: a burst of such steps would have to wait twice as long."""
    governor, costs = Governor(0.01, levels=2), [20 * MS, 20_000]
    governor.expect([20 * MS, 20_000])
    governor.level = 0
    governor.after_recorded(280 * MS, 60 * MS)
    done = run(governor, 600, 220 * MS, costs, MS)
    levels = done.levels
    assert levels[STEPS_UNTIL_LENGTH] == 1
    assert done.recorded[levels.index(0, STEPS_UNTIL_LENGTH)] <= 120


def test_one_expensive_first_step_leaves_no_level() -> None:
    """It is spent already: the steps after it are cheap."""
    governor = Governor(0.01, levels=2)
    for cost_ns in (2_000 * MS, 10 * MS, MS, 10 * MS, 10 * MS):
        governor.after_recorded(20 * MS + cost_ns, cost_ns)
    assert governor.level == 0


def test_modules_that_a_short_run_does_not_afford_are_recorded_in_a_longer_one() -> None:
    """Steps of 0.32 s, of which one with all modules costs 0.15 s: a burst waits for minutes of budget."""
    governor, costs = Governor(0.01, levels=2), [150 * MS, 500_000]
    governor.expect(costs)
    done = run(governor, 2_000, 320 * MS, costs, MS)
    assert 0 not in done.levels[:FIRST_STEPS]
    first = done.recorded[done.levels.index(0)]
    assert 140 <= first * 0.32 <= 300
    assert done.overhead <= 0.0105


def test_a_burst_begins_once_the_run_has_room_for_it() -> None:
    """The loan is used up by the first steps: the next ones do not follow at once."""
    done = run(Governor(0.01), 4_000, 5 * MS, [5 * MS], 100_000)
    begins = [at for before, at in zip(done.recorded, done.recorded[1:], strict=False) if at > before + 1]
    spent_ns = FIRST_STEPS * 5 * MS
    room_ns = FIRST_LOAN_S * SPENDABLE_SHARE * 0.01 * 1_000 * MS + 0.01 * 5 * MS * begins[0]
    assert spent_ns + BURST_STEPS * 5 * MS <= 1.1 * room_ns


def test_nothing_is_paid_back_by_one_long_gap() -> None:
    """The live panel goes on: a quarter of the budget records while the rest repays."""
    done = run(Governor(0.01), 2_000, 20 * MS, [1 * MS], 100_000)
    assert max(done.gaps) * 20 * MS < 10_000 * MS


@pytest.mark.parametrize("step_ns", STEPS_NS)
def test_the_budget_holds_from_the_first_gap_on(step_ns: int) -> None:
    """Nothing converges: once the loan is paid back, the first gaps are as long as the last ones."""
    # Of long steps the usual noise is more than recording costs, and a pair may charge it: that gap is another matter.
    noise = 0.03 if step_ns <= 10 * MS else 0.0
    done = run(Governor(0.005), 20_000, step_ns, [120_000], 150_000, noise)
    assert done.recorded[:FIRST_STEPS] == list(range(FIRST_STEPS))
    gaps = [gap for gap in done.gaps if gap != CONTROL_STEPS]
    gaps = gaps[len(gaps) // 2 :]
    if gaps:
        early = gaps[: max(len(gaps) // 10, 5)]
        assert sum(early) / len(early) == pytest.approx(sum(gaps) / len(gaps), rel=0.4)


def test_what_the_budget_has_room_for_is_recorded() -> None:
    """A cost of a tenth of the budget: every step but the controls."""
    done = run(Governor(0.05), 10_000, 10 * MS, [50_000], 10_000)
    assert set(done.gaps) == {CONTROL_STEPS}
    assert len(done.recorded) / 10_000 == pytest.approx(CONTROL_INTERVAL / (CONTROL_INTERVAL + CONTROL_STEPS), abs=0.01)


def test_without_a_budget_every_step_is_recorded() -> None:
    """``budget: null`` switches the governor off, controls and all."""
    done = run(Governor(None), 1_000, 1 * MS, [10 * MS], 0)
    assert not done.gaps
    assert done.levels == [0] * 1_000


def test_modules_are_dropped_when_bursts_become_too_rare() -> None:
    """Four steps' worth a step on a budget of 0.5 %: the finest modules go, and no more than have to."""
    done = run(Governor(0.005, levels=3), 60_000, 1 * MS, [4 * MS, 200_000, 20_000], 20_000)
    assert done.levels[0] == 0
    assert set(done.levels[FIRST_CONTROL_INTERVAL:]) == {1}
    assert done.overhead <= 1.05 * 0.005


def test_the_last_level_stays_however_rare_its_bursts_are() -> None:
    """There is nothing left to drop; the budget is kept by longer gaps alone."""
    done = run(Governor(0.005, levels=2), 100_000, 300_000, [3 * MS, 2 * MS], 20_000)
    assert set(done.levels[FIRST_CONTROL_INTERVAL:]) == {1}
    assert min([gap for gap in done.gaps if gap != CONTROL_STEPS][1:]) > MAX_SAMPLE_INTERVAL
    assert done.overhead <= 1.05 * 0.005


def test_modules_come_back_when_there_is_room_by_far() -> None:
    """The batch grows and a step takes fifty times as long: everything is recorded again."""
    governor = Governor(0.01, levels=2)
    run(governor, 5_000, 300_000, [2 * MS, 50_000], 20_000)
    assert governor.level == 1
    run(governor, 2_000, 15 * MS, [2 * MS, 50_000], 20_000)
    assert governor.level == 0


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.0, 1.25, 2.0])
def test_levels_do_not_swing(factor: float) -> None:
    """Costs around the threshold change the level once at most."""
    threshold = MAX_SAMPLE_INTERVAL * 0.01 * MS
    done = run(Governor(0.01, levels=2), 50_000, 1 * MS, [round(threshold * factor), 100_000], 0, noise=0.1)
    changes = sum(one != other for one, other in zip(done.levels, done.levels[1:], strict=False))
    assert changes <= 1


def test_gaps_do_not_lock_on_to_a_period_of_the_training() -> None:
    """Every tenth step is another kind of step: it is recorded as often as it occurs."""
    done = run(Governor(0.01), 200_000, 1 * MS, [100_000], 0)
    assert sum(at % 10 == 0 for at in done.recorded) / len(done.recorded) == pytest.approx(0.1, rel=0.2)


def test_pairs_find_the_cost_that_the_own_account_does_not_see() -> None:
    """Half of a true cost of 6 % is not on the own clock; the pairs see all of it, inside their interval."""
    governor, draw = Governor(0.01), random.Random(4)
    for _ in range(400):
        gap = 0
        while not gap:
            gap = governor.after_recorded(round(1.06 * MS * draw.lognormvariate(0, 0.02)), 30_000, 0)
        leave_alone(governor, [round(MS * draw.lognormvariate(0, 0.02)) for _ in range(gap)])
    paired = governor.paired()
    assert paired is not None
    assert paired.low <= 0.06 <= paired.high
    assert paired.cost == pytest.approx(0.06, abs=0.01)
    assert paired.high - paired.low < 0.02


def test_too_few_pairs_say_nothing() -> None:
    """An interval of a handful is no interval."""
    governor = Governor(0.01)
    for _ in range(MIN_PAIRS - 1):
        while not (gap := governor.after_recorded(MS, 100_000, 0)):
            pass
        leave_alone(governor, [MS] * gap)
    assert governor.paired() is None


def test_a_cost_in_doubt_is_charged_at_what_the_pairs_prove() -> None:
    """The own account sees a third of the cost: the run still costs no more than its budget."""
    governor, draw = Governor(0.01), random.Random(5)
    bare = cost = 0
    for _ in range(600):
        gap = 0
        while not gap:
            true = round(90_000 * draw.lognormvariate(0, 0.05))
            step = round(MS * draw.lognormvariate(0, 0.02))
            bare, cost = bare + step, cost + true
            gap = governor.after_recorded(step + true, 30_000, 0)
        bare += leave_alone(governor, [round(MS * draw.lognormvariate(0, 0.02)) for _ in range(gap)])
    assert cost / bare <= 1.2 * 0.01


@pytest.mark.parametrize("seed", range(5))
def test_what_was_charged_too_low_at_first_is_paid_back(seed: int) -> None:
    """Of 3.6 ms a step of 100 ms the own account sees 1.2: after a minute and a half the whole run is in its budget."""
    governor, draw = Governor(0.005), random.Random(seed)
    bare = cost = 0
    while bare < 90_000 * MS:
        gap = 0
        while not gap:
            step, true = (round(ns * draw.lognormvariate(0, 0.01)) for ns in (100 * MS, 3_600_000))
            bare, cost = bare + step, cost + true
            gap = governor.after_recorded(step + true, 1_200_000, 600_000)
        bare += leave_alone(governor, [round(100 * MS * draw.lognormvariate(0, 0.01)) for _ in range(gap)])
        cost += 600_000
    assert cost / bare <= 1.2 * 0.005


def test_a_step_that_takes_minutes_does_not_widen_the_interval() -> None:
    """A checkpoint saved inside one recorded step is one pair among many."""
    governor = Governor(0.01)
    for i in range(4 * MIN_PAIRS):
        while not (gap := governor.after_recorded(round(1.02 * MS) + (60_000 * MS if i == 9 else 0), 20_000, 0)):
            pass
        leave_alone(governor, [MS] * gap)
    paired = governor.paired()
    assert paired is not None
    assert paired.high < 0.03


def test_what_a_slow_hour_has_earned_is_not_spent_on_a_fast_one() -> None:
    """Steps of ten seconds, then of a millisecond: the budget holds for the fast ones, too."""
    governor = Governor(0.01)
    run(governor, 500, 10_000 * MS, [200_000], 20_000)
    done = run(governor, 20_000, 1 * MS, [200_000], 20_000)
    assert done.overhead <= 1.1 * 0.01


def test_slow_steps_that_nobody_is_to_blame_for_fall_on_both_sides() -> None:
    """One step in twenty takes ten times as long, recorded or not: the pairs' median is still the cost."""
    governor, draw = Governor(0.01), random.Random(4)

    def length() -> int:
        return 10 * MS if draw.random() < 0.05 else MS

    for _ in range(300):
        while not (gap := governor.after_recorded(length() + 20_000, 20_000, 200_000)):
            pass
        leave_alone(governor, [length() for _ in range(gap)])
    paired = governor.paired()
    assert paired is not None
    assert paired.low == pytest.approx(0.02, abs=1e-6)
    assert paired.high == pytest.approx(0.02, abs=1e-6)


@pytest.mark.parametrize("settling", [0, 2, 8])
def test_a_burst_has_eight_steps_that_count(settling: int) -> None:
    """However many of its first steps are excluded; they spend like all others."""
    governor, gap = Governor(0.01), 0
    run(governor, 20_000, MS, [100_000], 0)
    while (gap := governor.after_recorded(MS, 100_000)) <= CONTROL_STEPS:
        governor.after_gap(gap, gap * MS)
    governor.after_gap(gap, gap * MS)
    gaps = [governor.after_recorded(MS, 100_000, settles=at < settling) for at in range(settling + BURST_STEPS)]
    assert not any(gaps[:-1])
    assert gaps[-1] > 0


def test_other_threads_are_affordable_until_their_marks_cost_more_than_the_loan_and_their_share() -> None:
    """Their cost is a part of the budget, and the training's own recording keeps the rest."""
    governor = Governor(0.01)
    governor.charge_other_threads(OTHER_THREADS_LOAN_NS)
    assert governor.affords_other_threads
    governor.after_gap(1_000, 10_000 * MS)
    share_ns = round(OTHER_THREADS_SHARE * SPENDABLE_SHARE * 0.01 * 10_000 * MS)
    governor.charge_other_threads(share_ns)
    assert governor.affords_other_threads
    governor.charge_other_threads(2)
    assert not governor.affords_other_threads


def test_other_threads_that_are_off_stay_off() -> None:
    """A report in which rows come and go would be read wrongly."""
    governor = Governor(0.01)
    governor.charge_other_threads(OTHER_THREADS_LOAN_NS + 1)
    governor.after_gap(10_000, 1_000_000 * MS)
    assert not governor.affords_other_threads


def test_without_a_budget_other_threads_are_always_affordable() -> None:
    """Every step with everything was asked for."""
    governor = Governor(None)
    governor.charge_other_threads(10**15)
    assert governor.affords_other_threads


def test_the_cost_of_other_threads_drops_no_module_of_the_training() -> None:
    """What a level costs is learned anew once they are off."""
    governor = Governor(0.01, levels=2)
    for _ in range(200):
        governor.charge_other_threads(40 * MS)
        if governor.after_recorded(51 * MS, 50 * MS if governor.affords_other_threads else MS // 100, MS // 100):
            governor.after_gap(100, 100 * MS)
    assert governor.level == 0
