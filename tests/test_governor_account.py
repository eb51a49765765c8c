"""The governor's account, step by step: what time earns, what recording spends, and how long a debt is paid back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoprof._session.governor import BURST_STEPS, CONTROL_STEPS, FIRST_LOAN_S, MAX_CHARGE, MAX_CREDIT_STEPS, Governor
from autoprof._stats.paired_steps import CONTROL_INTERVAL, FIRST_CONTROL_INTERVAL, FIRST_STEPS, MIN_PAIRS, START_STEPS

MS = 1_000_000
BUDGET = 0.01
SHARE = 0.6 * BUDGET
"""The part of the time that is spent: the rest of the budget covers what autoprof's timers miss."""


class Ledger:
    """A run in steps of 1 ms, and the account as the documentation describes it."""

    def __init__(self, governor: Governor) -> None:
        self.governor = governor
        self.steps = 0
        self.credit_ns = 0.0
        self.loan_ns = 0.0
        self.starting = True
        self.spent_ns = 0

    def room_ns(self, steps: int) -> float:
        """Return what the run may spend after this many further steps: the loan and its budget, less what it spent."""
        return FIRST_LOAN_S * SHARE * 1000 * MS + BUDGET * (self.steps + steps) * MS - self.spent_ns

    def _earn(self, steps: int) -> None:
        earned = SHARE * steps * MS
        paid = min(0.75 * earned, self.loan_ns)
        self.loan_ns -= paid
        self.credit_ns = min(self.credit_ns + earned - paid, MAX_CREDIT_STEPS * SHARE * MS)

    def record(self, cost_ns: int, toggle_ns: int = 0) -> int:
        """Record a step; return the gap after it."""
        gap = self.governor.after_recorded(MS + cost_ns, cost_ns, toggle_ns)
        self.steps += 1
        self._earn(1)
        self.credit_ns -= cost_ns
        self.spent_ns += cost_ns
        most_ns = FIRST_LOAN_S * SHARE * 1000 * MS + (BUDGET - SHARE) * self.steps * MS
        if self.starting and (self.steps > START_STEPS or -self.credit_ns >= most_ns):
            self.starting = False
            self.loan_ns, self.credit_ns = max(-self.credit_ns, 0.0), max(self.credit_ns, 0.0)
        self.credit_ns -= toggle_ns if gap else 0
        return gap

    def skip(self, gap: int, spent_ns: int = 0) -> None:
        """Let the gap pass; ``spent_ns`` of it is work of autoprof's own."""
        self.governor.after_gap(gap, gap * MS, spent_ns)
        self.steps += gap
        self._earn(gap)
        self.credit_ns -= spent_ns

    def start(self, cost_ns: int = 0) -> None:
        """Pass the run's start, in which every step is recorded but the controls."""
        while self.starting:
            gap = self.record(cost_ns)
            if gap:
                self.skip(gap)

    def burst(self, cost_ns: int, toggle_ns: int = 0) -> int:
        """Record up to the next gap that pays back a debt; return it."""
        while True:
            gap = self.record(cost_ns, toggle_ns)
            if gap and self.credit_ns < 0:
                return gap
            if gap:
                self.skip(gap)


def check_payback(ratios: list[float]) -> None:
    """Assert that gaps earn back the debt: on the whole exactly, each within a quarter, in both directions."""
    assert min(ratios) >= 0.75
    assert max(ratios) <= 1.26  # a gap has whole steps
    assert min(ratios) < 0.8
    assert max(ratios) > 1.2
    assert sum(ratios) / len(ratios) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(("toggle_ns", "spent_ns"), [(0, 0), (3 * MS, 0), (0, 3 * MS)])
def test_a_gap_earns_back_what_the_burst_its_hooks_and_its_delivery_cost(toggle_ns: int, spent_ns: int) -> None:
    """Attaching and detaching is part of the debt, and so is the work on the recorded steps in the gap."""
    ledger, ratios = Ledger(Governor(BUDGET)), []
    ledger.start()
    for _ in range(400):
        gap = ledger.burst(MS, toggle_ns)
        ratios.append(gap * SHARE * MS / -ledger.credit_ns)
        ledger.skip(gap, spent_ns)
    check_payback(ratios)


def test_work_between_the_steps_is_paid_back_as_that_of_steps_is() -> None:
    """A thread of autoprof's own does some."""
    ledger, ratios = Ledger(Governor(BUDGET)), []
    ledger.start()
    for _ in range(400):
        ledger.governor.spend(3 * MS)
        ledger.credit_ns -= 3 * MS
        gap = ledger.burst(MS)
        ratios.append(gap * SHARE * MS / -ledger.credit_ns)
        ledger.skip(gap)
    check_payback(ratios)
    without = Governor(None)
    without.spend(3 * MS)
    assert without.after_recorded(MS, MS) == 0


def test_while_the_loan_is_paid_back_a_quarter_of_the_budget_records() -> None:
    """Gaps are four times as long until the start is paid for, and of the usual length from then on."""
    ratios: list[float] = []
    loans = 0
    for seed in range(40):
        ledger = Ledger(Governor(BUDGET, seed=seed))
        ledger.start(MS // 2)
        assert ledger.loan_ns > 50 * MS
        for _ in range(14):
            gap = ledger.burst(MS // 2)
            loans += ledger.loan_ns > 0
            share = 0.25 * SHARE if ledger.loan_ns > 0 else SHARE
            if ledger.room_ns(gap - 2) > BURST_STEPS * MS // 2:  # else the gap is as long as that takes
                ratios.append(gap * share * MS / -ledger.credit_ns)
            ledger.skip(gap)
        assert ledger.loan_ns == 0
    assert 0.2 < loans / (40 * 14) < 0.8
    check_payback(ratios)


def test_gaps_differ_from_seed_to_seed_and_are_the_same_for_one() -> None:
    """A run can be repeated; the ranks of a job do not skip the same steps."""

    def gaps(seed: int) -> list[int]:
        ledger, found = Ledger(Governor(BUDGET, seed=seed)), []
        ledger.start()
        for _ in range(10):
            found.append(ledger.burst(MS))
            ledger.skip(found[-1])
        return found

    assert gaps(1) == gaps(1)
    assert gaps(1) != gaps(2)


def test_controls_come_after_a_fixed_number_of_steps() -> None:
    """After each gap the count begins anew."""
    governor = Governor(BUDGET)
    for _ in range(4):
        gaps = [governor.after_recorded(MS, 0) for _ in range(FIRST_CONTROL_INTERVAL)]
        assert gaps == [0] * (FIRST_CONTROL_INTERVAL - 1) + [CONTROL_STEPS]
        governor.after_gap(CONTROL_STEPS, CONTROL_STEPS * MS)


def test_controls_become_rarer_with_the_eighth_pair() -> None:
    """From then on there is an interval."""
    governor = Governor(BUDGET)
    pair(governor, MS, 0, MIN_PAIRS)
    gaps = [governor.after_recorded(MS, 0) for _ in range(CONTROL_INTERVAL)]
    assert gaps == [0] * (CONTROL_INTERVAL - 1) + [CONTROL_STEPS]


def test_the_first_twenty_steps_are_recorded_whatever_they_cost() -> None:
    """Steps that cost more than the largest loan are skipped from the next one on."""
    governor = Governor(BUDGET)
    gaps = [governor.after_recorded(101 * MS, 100 * MS) for _ in range(FIRST_STEPS + 1)]
    assert gaps[:-1] == [0] * FIRST_STEPS
    assert gaps[-1] > 0


def test_a_burst_ends_early_where_credit_pays_for_its_steps_but_not_for_its_hooks() -> None:
    """Detaching them takes more than there is: the burst has its eight steps, and a gap pays the debt back."""
    ledger = Ledger(Governor(BUDGET))
    ledger.start()
    while not (gap := ledger.record(0)):
        pass
    ledger.skip(gap)
    gaps = [ledger.record(0, toggle_ns=3 * MS) for _ in range(BURST_STEPS)]
    assert ledger.credit_ns + 3 * MS > 0
    assert gaps[:-1] == [0] * (BURST_STEPS - 1)
    assert gaps[-1] > CONTROL_STEPS


def test_a_small_debt_is_paid_back_by_one_step() -> None:
    """A gap is no longer than the debt makes it."""
    ledger = Ledger(Governor(BUDGET))
    ledger.start()
    ledger.skip(ledger.burst(MS))
    earned = round(SHARE * MS)
    ledger.record(round(ledger.credit_ns) + earned + 1_000)
    assert ledger.burst(earned) == 1


@pytest.mark.parametrize(("steps", "elapsed_ns", "found"), [(0, 5, 7), (5, 0, 7), (0, 0, 7), (1, 1, 1), (2, 8, 4)])
def test_a_gap_without_steps_or_without_time_says_nothing(steps: int, elapsed_ns: int, found: int) -> None:
    """A clock that stood still is no measurement of the bare step."""
    governor = Governor(BUDGET)
    assert governor.bare_ns == 0
    governor.after_recorded(9, 2)
    governor.after_gap(steps, elapsed_ns)
    assert governor.bare_ns == found


# Levels: at 1 ms a step, what costs more than 500 times the 6 us that a step earns is dropped: 3 ms.


def lead(governor: Governor, bursts: int, cost_ns: Callable[[int], int], toggle_ns: int = 0, bare_ns: int = MS) -> None:
    """Record bursts, each step for what ``cost_ns`` says of its number in the burst."""
    for _ in range(bursts):
        at = gap = 0
        while not gap:
            at += 1
            gap = governor.after_recorded(bare_ns + cost_ns(at), cost_ns(at), toggle_ns)
        governor.after_gap(gap, gap * bare_ns)


def test_modules_are_dropped_for_what_attaching_them_costs() -> None:
    """Recording itself is free, and the hooks of a burst cost 4 ms for each of its steps."""
    governor = Governor(BUDGET, levels=2)
    lead(governor, 40, lambda _: 0, toggle_ns=4 * MS * BURST_STEPS)
    assert governor.level == 1


def test_what_attaching_costs_is_spread_over_the_burst() -> None:
    """Hooks that cost 0.7 ms are a tenth of that for each step, and nothing is dropped."""
    governor = Governor(BUDGET, levels=2)
    lead(governor, 40, lambda _: 0, toggle_ns=700_000)
    assert governor.level == 0


def test_one_expensive_step_drops_no_module() -> None:
    """The cost of a level is a running mean: the last step of each burst costs 8 ms, the others 0.1 ms."""
    governor = Governor(BUDGET, levels=2)
    Ledger(governor).start()
    lead(governor, 40, lambda at: 8 * MS if at == BURST_STEPS else 100_000)
    assert governor.level == 0


def test_levels_are_left_and_entered_one_by_one() -> None:
    """Too costly for two levels it drops both; steps of 10 ms afford the middle one again, and not the finest."""
    governor = Governor(BUDGET, levels=3)
    costs = (40 * MS, 10 * MS, 100_000)
    lead(governor, 40, lambda _: costs[governor.level])
    assert governor.level == 2
    lead(governor, 40, lambda _: costs[governor.level], bare_ns=10 * MS)
    assert governor.level == 1


@pytest.mark.parametrize(("bare_ns", "level"), [(1_600_000, 1), (3 * MS, 0)])
def test_modules_come_back_only_with_room_to_spare(bare_ns: int, level: int) -> None:
    """What costs 4 ms is dropped at 1 ms a step, affordable from 1.4 ms on, and recorded again from 2.7 ms on."""
    governor = Governor(BUDGET, levels=2)
    costs = (4 * MS, 100_000)
    lead(governor, 40, lambda _: costs[governor.level])
    assert governor.level == 1
    lead(governor, 40, lambda _: costs[governor.level], bare_ns=bare_ns)
    assert governor.level == level


def test_without_levels_nothing_is_dropped() -> None:
    """One level is all there is."""
    governor = Governor(BUDGET)
    lead(governor, 40, lambda _: 40 * MS)
    assert governor.level == 0


# Pairs: what the account does not see is charged.


def pair(governor: Governor, step_ns: int, cost_ns: int, count: int = 1) -> None:
    """Compare recorded steps of this length and measured cost with steps of 1 ms."""
    for _ in range(count):
        while not (gap := governor.after_recorded(step_ns, cost_ns)):
            pass
        first = min(governor.comparable, gap)
        governor.compare(first, first * MS)
        governor.after_gap(gap, gap * MS)


@pytest.mark.parametrize(
    ("step_ns", "cost_ns", "charge"),
    [
        pytest.param(1_200_000, 100_000, 2.0, id="half of the cost is seen"),
        pytest.param(2_000_000, 100_000, MAX_CHARGE, id="a tenth of the cost is seen"),
        pytest.param(MS, 100_000, 1.0, id="more is seen than there is"),
        pytest.param(1_200_000, 0, 1.0, id="nothing is seen"),
    ],
)
def test_the_charge_is_the_ratio_of_true_and_measured_cost(step_ns: int, cost_ns: int, charge: float) -> None:
    """It lies between 1 and ``MAX_CHARGE``; the share of time that may be spent falls as it rises."""
    governor = Governor(BUDGET)
    pair(governor, step_ns, cost_ns, MIN_PAIRS)
    assert governor.spendable_share == pytest.approx(SHARE / charge)


def test_the_charge_changes_only_with_every_eighth_pair() -> None:
    """One pair more does not move it."""
    governor = Governor(BUDGET)
    pair(governor, 1_200_000, 100_000, MIN_PAIRS)
    charged = governor.spendable_share
    pair(governor, 1_200_000, 300_000, MIN_PAIRS - 1)
    assert governor.spendable_share == charged
    pair(governor, 1_200_000, 300_000)
    assert governor.spendable_share == pytest.approx(SHARE)


def test_what_was_charged_too_low_for_a_long_time_is_paid_back_by_one_short_gap() -> None:
    """The whole run is charged anew, but no more than what 256 steps earn: a long run would pause for hours."""
    ledger = Ledger(Governor(BUDGET))
    ledger.start()
    for _ in range(100):
        ledger.skip(ledger.burst(MS // 2))
    pair(ledger.governor, 2 * MS, 100_000, MIN_PAIRS - 1)
    while not ledger.governor.after_recorded(2 * MS, 100_000):
        pass
    ledger.governor.compare(1, MS)
    assert ledger.governor.spendable_share == pytest.approx(SHARE / MAX_CHARGE)
    while not (gap := ledger.governor.after_recorded(MS, 0)):
        pass
    assert MAX_CREDIT_STEPS < gap < 6 * MAX_CREDIT_STEPS


def test_the_cost_by_pairs_names_the_share_of_steps_recorded() -> None:
    """Of all steps so far."""
    governor = Governor(BUDGET)
    recorded = unsampled = 0
    for _ in range(MIN_PAIRS):
        gap = 0
        while not gap:
            gap = governor.after_recorded(MS + 100_000, 100_000)
            recorded += 1
        governor.compare(1, MS)
        governor.after_gap(gap, gap * MS)
        unsampled += gap
    paired = governor.paired()
    assert paired is not None
    assert paired.recorded == pytest.approx(recorded / (recorded + unsampled))
    so_far = governor.paired(unsampled + 100)
    assert so_far is not None
    assert so_far.recorded == pytest.approx(recorded / (recorded + unsampled + 100))
