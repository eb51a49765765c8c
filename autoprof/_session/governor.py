"""Keep the cost of recording under a budget: choose which steps are recorded, and in how much detail.

Time earns, recording spends. Each nanosecond of training earns ``budget`` nanoseconds of credit; a recorded step
spends its cost. Steps are recorded while there is credit; after that, as many steps are skipped as earn the debt back.
Whatever a step costs, the run as a whole stays within its budget. No estimate has to converge: the first recorded step
already gives the length of the first gap.

A run begins with a loan: its first steps are recorded although they cost more than they earn, so that a short run is
mostly recorded. Most of what later steps earn pays the loan back. At any time a run has cost at most its budget so far
and the spending of a further ``FIRST_LOAN_S`` seconds: the level of the first step is chosen by the expected cost of
each level, and a burst begins once that limit has room for it. Only the first steps, which a report needs, may exceed
it: up to ``MAX_EXCESS`` loans where they record many modules, by more where the coarsest level or one step costs more.

Steps are recorded in bursts, because attaching and detaching hooks costs as much as a step. There are two kinds of
gaps. One that pays back a debt varies by up to a quarter of its length at random, so that no period of the training is
always sampled or always missed. One of ``CONTROL_STEPS``, made while there is credit, has a fixed length: it gives
recorded steps unsampled neighbours to be compared with.

Where several ranks train together, they record the same steps, which ``CommonSteps`` chooses by their numbers: the
governor of each rank then decides how large a part of them it affords. Credit and debt raise and lower that rate.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import ceil
from typing import Final

from .._stats.paired_steps import (
    CONTROL_INTERVAL,
    FIRST_CONTROL_INTERVAL,
    FIRST_STEPS,
    MIN_PAIRS,
    START_STEPS,
    PairedSteps,
)
from .._units import NS_PER_S
from ..summary import PairedCost
from .common_steps import BLOCK_STEPS, CommonSteps

MAX_SAMPLE_INTERVAL: Final = 500
"""Steps per recorded step, above which modules are dropped: rarer samples describe a run too poorly."""
RESUME_FACTOR: Final = 2.0
"""A finer level is recorded again when it is affordable this many times as often as ``MAX_SAMPLE_INTERVAL``."""
BURST_STEPS: Final = 8
"""The smallest number of consecutive steps recorded after a gap, settling steps not counted."""
CONTROL_STEPS: Final = 2
"""The length of a gap made while there is credit."""
MIN_SETTLING_STEPS: Final = 2
"""The first steps of a burst, excluded from statistics: the recording code is not in the processor's caches yet."""
SETTLING_NS: Final = 3_000_000
"""Further steps settle until they have lasted this long. In steps of 0.3 ms a layer of four small operations read 5 %
too long in the third to the eighth step, in steps of 1 ms 2 % in the third; in steps of 10 ms no excess remained
(measured step by step with the witness of ``benchmarks.budget``). The likely reason is code that is in no cache and no
branch predictor yet."""
MAX_SETTLING_STEPS: Final = 8
MAX_LOAN_S: Final = 30
"""The largest loan, as the seconds of training whose budget pays it back."""
FIRST_LOAN_S: Final = 12
"""The same at the beginning, so that a run of some seconds costs about 1 %: the limit of all spending grows by
the whole budget of the time so far."""
RANKS_LOAN_S: Final = 60
"""The largest loan where ranks record common steps. They are compared in the steps that all of them have recorded, and
the first one that has no loan left ends these: four ranks on two processors record a step at three times its cost."""
LOAN_SHARE: Final = 0.75
"""The part of the budget that pays the loan back. A run is within its budget once it has lasted for about the time of
the loan over the budget: some seconds, at most half a minute; with several ranks a minute."""
STEPS_UNTIL_LENGTH: Final = 3
"""Recorded steps after which the length of a step is known: the first ones allocate and initialise."""
STEPS_IF_BUSY: Final = 6
"""Recorded steps after which the cost of a level is known, where it is expected to fit the loan: other programs may
interrupt the marks of three steps in a row. A level of ``BUSY_FACTOR`` times the cost that fits is left after three."""
BUSY_FACTOR: Final = 4.0
MAX_EXCESS: Final = 2.0
"""The largest cost of the first steps of a level, as a multiple of the loan and their budget: from fewer steps there
is no verdict, and coarser ones have no rows for the modules."""
COST_WEIGHT: Final = 0.25
"""Weight of the newest cost in the running estimate."""
SPENDABLE_SHARE: Final = 0.6
"""The part of the budget that is spent; the rest covers cost that autoprof's timers miss or see late."""
MAX_CREDIT_STEPS: Final = 256
"""Steps whose credit can be saved up: the credit of a slow hour is not spent on a fast one."""
MAX_CHARGE: Final = 4.0
"""The largest ratio of the charge for a step to its measured cost."""
OTHER_THREADS_LOAN_NS: Final = 10_000_000
"""What marks of other threads may cost before the budget pays for them."""
OTHER_THREADS_SHARE: Final = 0.5
"""The part of the budget that marks of other threads may spend."""
GAP_SPREAD: Final = 0.25
"""The largest random deviation of a gap from the length that pays back the debt, as a fraction."""

PAYBACK_BLOCKS: Final = 4.0
"""Recorded blocks within which a debt is paid back where ranks record common steps."""
MIN_CORRECTION: Final = 0.25
MAX_CORRECTION: Final = 1.5
"""The limits of the factor by which credit and debt change the rate of common steps."""


class Governor:
    """Decide after each recorded step how many steps to skip, and at which level to go on.

    Level 0 records every target, each further one fewer, the last (``levels - 1``) only phases. ``budget`` is the
    fraction of training time that recording may cost; None means every step and all targets.
    """

    def __init__(self, budget: float | None, levels: int = 1, seed: int = 0) -> None:
        self.level = 0
        self._budget = None if budget is None else SPENDABLE_SHARE * budget
        self._levels = levels
        self._expected: Sequence[float] = (0.0,) * levels
        self._first_steps = 0
        """Steps recorded at the present level, as long as the run begins."""
        self._shortest_ns = float("inf")
        self._cheapest_ns = float("inf")
        """The lowest cost of these steps."""
        self._burst_steps = BURST_STEPS
        self._charged_ns = 0.0
        self._random = random.Random(seed)
        self._credit_ns = 0.0
        self._loan_ns = 0.0
        self._starting = True
        self._burst = 0
        self._settled = 0
        self._in_row = 0
        self._bare_ns = 0.0
        self._usual_ns = 0.0
        self._costs: dict[int, float] = {}
        self._recorded = 0
        self._unsampled = 0
        self._spent_ns = 0
        self._earned_ns = 0.0
        self._other_threads_ns = 0
        self.affords_other_threads = True
        """Whether the budget pays for marks of other threads; once it does not, they are switched off for good."""
        self._charge = 1.0
        self._pairs = PairedSteps()
        self._common: CommonSteps | None = None
        self._rate = 1.0
        self.affordable_rate = 1.0
        """The part of the common steps that this rank's budget pays for."""
        self.agreed_rate = 1.0
        """The part of the common steps that every rank's budget pays for, as far as it is known."""

    def follow(self, common: CommonSteps) -> None:
        """Choose steps by their numbers from now on, as every other rank does."""
        if self._budget is not None:
            self._common = common

    def expect(self, costs_ns: Sequence[float]) -> None:
        """Take the expected cost of a step at each level, before the first step; choose the level to begin with."""
        if self._budget is None:
            return
        self._expected = costs_ns
        self.level = self._finest_to_begin_with()

    @property
    def follows_common_steps(self) -> bool:
        """Whether steps are chosen by their numbers."""
        return self._common is not None

    @property
    def active(self) -> bool:
        """Whether there is a budget to keep."""
        return self._budget is not None

    @property
    def bare_ns(self) -> float:
        """The length of the last steps without hooks; 0 where none is known."""
        return self._bare_ns

    @property
    def spendable_share(self) -> float | None:
        """The cost by autoprof's timers that may be spent in each step, as a fraction of it; None without a budget."""
        return None if self._budget is None else self._budget / self._charge

    @property
    def comparable(self) -> int:
        """The number of a gap's first steps that are compared with the recorded ones before it."""
        return self._pairs.comparable

    def after_recorded(
        self, step_ns: int, cost_ns: int, toggle_ns: int = 0, *, settles: bool = False, step: int = 0
    ) -> int:
        """Take the length of a recorded step and its measured cost; return how many steps to skip now.

        ``toggle_ns`` is the cost of attaching and detaching in a burst; a step that ``settles`` is excluded, and makes
        the burst longer. ``step`` is its number, for common steps. A gap of 0 goes on recording.
        """
        self._recorded += 1
        if self._budget is None:
            return 0
        self._burst += 1
        self._settled += settles
        self._in_row += 1
        self._pairs.add(step_ns, cost_ns)
        bare_ns = max(step_ns - cost_ns, 1)
        if not self._bare_ns:
            self._bare_ns = self._usual_ns = float(bare_ns)
        self._earn(bare_ns)
        self._credit_ns -= self._spend(cost_ns)
        self._learn(self._charge * (cost_ns + toggle_ns / self._burst))
        begins = self._begins(bare_ns, self._charge * cost_ns)
        if self._common is not None:
            return self._skip_to_common(self._common, step, toggle_ns, begins=begins)
        if begins:
            return 0
        if self._on_loan() or self._credit_ns - self._charge * toggle_ns >= 0:
            if self._in_row < (CONTROL_INTERVAL if self._pairs.count >= MIN_PAIRS else FIRST_CONTROL_INTERVAL):
                return 0
            self._end_burst(toggle_ns)
            self._choose_level()
            return CONTROL_STEPS
        if self._burst - self._settled < BURST_STEPS:
            return 0
        self._end_burst(toggle_ns)
        self._choose_level()
        return self._gap()

    def charge_other_threads(self, cost_ns: int) -> None:
        """Take the part of a recorded step's cost that marks of other threads caused, before ``after_recorded``."""
        if self._budget is None or not self.affords_other_threads:
            return
        self._other_threads_ns += cost_ns
        if self._other_threads_ns > OTHER_THREADS_LOAN_NS + OTHER_THREADS_SHARE * self._earned_ns:
            self.affords_other_threads = False
            self._costs.clear()  # the steps that follow cost less

    def after_gap(self, steps: int, elapsed_ns: int, spent_ns: int = 0) -> None:
        """Take the length of a gap: ``steps`` steps without hooks, ``elapsed_ns`` together.

        ``spent_ns`` of it is autoprof's own work on the steps recorded before.
        """
        if steps <= 0 or elapsed_ns <= 0:
            return
        self._unsampled += steps
        self._bare_ns = elapsed_ns / steps
        self._usual_ns += COST_WEIGHT * (self._bare_ns - self._usual_ns)
        if self._budget is not None:
            self._earn(elapsed_ns)
            self._credit_ns -= self._spend(spent_ns)
        self._pairs.clear()

    def spend(self, ns: int) -> None:
        """Take the cost of work between the steps, as of a thread of autoprof's own."""
        if self._budget is not None:
            self._credit_ns -= self._spend(ns)

    def compare(self, steps: int, elapsed_ns: int) -> None:
        """Compare the first ``steps`` of a gap with as many recorded ones before it."""
        if self._pairs.compare(steps, elapsed_ns) and self._pairs.count % MIN_PAIRS == 0:
            paired, counted = self.paired(), self._pairs.counted_cost
            if paired is not None and counted > 0:
                # Autoprof's timers miss cold caches and the like. The charge lies between the cost that the pairs
                # prove, which takes many of them to be enough, and the one they make likely, which one slow step may
                # exaggerate.
                self._recharge(min(max((paired.low + paired.cost) / (2 * counted), 1.0), MAX_CHARGE))

    def paired(self, unsampled: int | None = None) -> PairedCost | None:
        """Return the cost found by pairs, or None while there are too few.

        ``unsampled`` is the number of unsampled steps, by default of those in gaps that have ended.
        """
        others = self._unsampled if unsampled is None else unsampled
        return self._pairs.cost(self._recorded / max(self._recorded + others, 1))

    def _begins(self, bare_ns: float, cost_ns: float) -> bool:
        """Return whether this is one of the first steps; change their level where another one fits the loan."""
        if self._first_steps >= FIRST_STEPS:
            return False
        self._first_steps += 1
        self._shortest_ns = min(self._shortest_ns, bare_ns)
        self._cheapest_ns = min(self._cheapest_ns, cost_ns)
        level = self.level
        if self._recorded == STEPS_UNTIL_LENGTH:
            level = min(level, self._finest_to_begin_with())
        if self._first_steps >= STEPS_UNTIL_LENGTH and level == self.level < self._levels - 1:
            may_be_busy = self._first_steps < STEPS_IF_BUSY and self._fits_first_steps(self._expected_ns(level))
            level += not self._fits_first_steps(self._cheapest_ns / (BUSY_FACTOR if may_be_busy else 1))
        if level != self.level:
            self.level, self._first_steps, self._cheapest_ns = level, 0, float("inf")
        return self._first_steps < FIRST_STEPS

    def _finest_to_begin_with(self) -> int:
        """Return the finest level whose first steps are expected to be affordable; else the coarsest one."""
        last = self._levels - 1
        return next((level for level in range(last) if self._fits_first_steps(self._cost_ns(level))), last)

    def _fits_first_steps(self, cost_ns: float) -> bool:
        """Return whether the loan pays the first steps at this cost, with their budget where their length is known."""
        assert self._budget is not None
        length_ns = self._shortest_ns if self._recorded >= STEPS_UNTIL_LENGTH else 0.0
        loan_s = FIRST_LOAN_S if self._common is None else RANKS_LOAN_S
        limit_ns = loan_s * NS_PER_S * self._budget + FIRST_STEPS * length_ns * self._budget / SPENDABLE_SHARE
        return FIRST_STEPS * cost_ns <= MAX_EXCESS * limit_ns

    def _room_ns(self) -> float:
        """Return the rest of the limit of spending for a run of this length; negative where it is exceeded."""
        assert self._budget is not None
        return FIRST_LOAN_S * NS_PER_S * self._budget + self._earned_ns / SPENDABLE_SHARE - self._charged_ns

    def _cost_ns(self, level: int) -> float:
        """Return the cost of a step at this level: as measured, else as expected."""
        return self._costs.get(level, self._expected_ns(level))

    def _expected_ns(self, level: int) -> float:
        return self._charge * self._expected[level]

    def _burst_cost_ns(self, level: int) -> float:
        return self._burst_steps * self._cost_ns(level)

    def _skip_to_common(self, common: CommonSteps, step: int, toggle_ns: int, *, begins: bool) -> int:
        """Return the number of steps to the next common one. The rate changes between blocks only."""
        on_loan = self._on_loan() or begins
        if not common.goes_on(step):
            self.affordable_rate = 1.0 if on_loan else self._afford(common)
            self._rate = 1.0 if on_loan else min(self.affordable_rate, self.agreed_rate)
        gap = common.skip(step, self._rate)
        if gap:
            self._end_burst(toggle_ns)
            self._choose_level()
        return gap

    def _afford(self, common: CommonSteps) -> float:
        """Return the part of the common steps that the budget pays for, less where there is debt."""
        assert self._budget is not None
        cost_ns = max(self._block_cost_ns(), 1.0)
        earned_ns = self._budget * min(self._bare_ns, self._usual_ns) * common.block_steps
        rate = earned_ns * (1 - LOAN_SHARE if self._loan_ns else 1.0) / cost_ns
        if rate >= 1.0 and self._credit_ns >= 0:
            return 1.0
        # Between two blocks the credit falls by the cost of one and rises again: its middle is to be 0.
        correction = 1.0 + (self._credit_ns + cost_ns / 2) / (PAYBACK_BLOCKS * cost_ns)
        return min(rate * min(max(correction, MIN_CORRECTION), MAX_CORRECTION), 1.0)

    def _block_cost_ns(self) -> float:
        """Return the cost of a block of common steps at the present level."""
        return self._costs.get(self.level, 0.0) * BLOCK_STEPS

    def _on_loan(self) -> bool:
        """Return whether the run is in its first steps; at their end turn the debt into the loan."""
        assert self._budget is not None
        if self._starting:
            debt_ns = max(-self._credit_ns, 0.0)
            most_ns = RANKS_LOAN_S * NS_PER_S * self._budget
            if self._common is None:  # ranks compare their first steps: all record as many as they can
                rest_ns = self._earned_ns * (1 / SPENDABLE_SHARE - 1)
                most_ns = min(MAX_LOAN_S * NS_PER_S * self._budget, FIRST_LOAN_S * NS_PER_S * self._budget + rest_ns)
            if self._recorded + self._unsampled > START_STEPS or debt_ns >= most_ns:
                self._starting = False
                self._loan_ns = debt_ns
                self._credit_ns += debt_ns
        return self._starting

    def _earn(self, bare_ns: float) -> None:
        """Earn the budget of this time, a part of it for the loan."""
        assert self._budget is not None
        earned_ns = self._budget * bare_ns
        self._earned_ns += earned_ns
        paid_back_ns = min(LOAN_SHARE * earned_ns, self._loan_ns)
        self._loan_ns -= paid_back_ns
        most_ns = MAX_CREDIT_STEPS * self._budget * self._bare_ns
        if self._common is not None:  # the gaps between common steps differ: the longest save up for two blocks
            most_ns = max(most_ns, 2 * self._block_cost_ns())
        self._credit_ns = min(self._credit_ns + earned_ns - paid_back_ns, most_ns)

    def _spend(self, ns: int) -> float:
        """Add to the measured cost; return the charge for it."""
        self._spent_ns += ns
        self._charged_ns += self._charge * ns
        return self._charge * ns

    def _end_burst(self, toggle_ns: int) -> None:
        self._credit_ns -= self._spend(toggle_ns)
        self._burst_steps = BURST_STEPS + self._settled
        self._burst = self._settled = self._in_row = 0

    def _gap(self) -> int:
        assert self._budget is not None
        earned_ns = self._budget * self._bare_ns * (1 - LOAN_SHARE if self._loan_ns else 1.0)
        steps = -self._credit_ns / earned_ns * self._random.uniform(1 - GAP_SPREAD, 1 + GAP_SPREAD)
        missing_ns = self._burst_cost_ns(self.level) - self._room_ns()
        return max(ceil(steps), ceil(missing_ns / (self._budget / SPENDABLE_SHARE * self._bare_ns)), 1)

    def _learn(self, cost_ns: float) -> None:
        known = self._costs.get(self.level, cost_ns)
        begins = self._first_steps < STEPS_IF_BUSY  # work of the first steps alone says nothing about the next ones
        self._costs[self.level] = min(known, cost_ns) if begins else known + COST_WEIGHT * (cost_ns - known)

    def _choose_level(self) -> None:
        """Drop modules when a burst is affordable too rarely; record them again when it is affordable often enough."""
        assert self._budget is not None
        affordable = self._budget * self._usual_ns
        if self._costs[self.level] > MAX_SAMPLE_INTERVAL * affordable and self.level < self._levels - 1:
            self.level += 1
        elif self.level:
            finer = self.level - 1
            is_affordable = self._cost_ns(finer) * RESUME_FACTOR < MAX_SAMPLE_INTERVAL * affordable
            if is_affordable and self._burst_cost_ns(finer) <= self._room_ns():
                self.level = finer

    def _recharge(self, charge: float) -> None:
        """Charge by another factor, also for the past: the budget is the whole run's."""
        assert self._budget is not None
        owed, most = (charge - self._charge) * self._spent_ns, MAX_CREDIT_STEPS * self._budget * self._usual_ns
        owed = min(max(owed, -most), most)
        self._charge = charge
        self._charged_ns += owed
        self._credit_ns -= owed
