"""Keep the cost of recording under a budget: choose which steps are recorded, and in how much detail.

Time earns, recording spends. Each nanosecond of training earns ``budget`` nanoseconds of credit; a recorded step
spends its cost. Steps are recorded while there is credit; after that, as many steps are skipped as earn the debt back.
Whatever a step costs, the run as a whole stays within its budget. No estimate has to converge: the first recorded step
already gives the length of the first gap.

A run begins with a loan: its first steps are recorded although they cost more than they earn, so that a short run is
mostly recorded. Most of what later steps earn pays the loan back. A run of a few seconds may cost more than its budget.

Steps are recorded in bursts, because attaching and detaching hooks costs as much as a step. There are two kinds of
gaps. One that pays back a debt varies by up to a quarter of its length at random, so that no period of the training is
always sampled or always missed. One of ``CONTROL_STEPS``, made while there is credit, has a fixed length: it gives
recorded steps unsampled neighbours to be compared with.
"""

from __future__ import annotations

import random
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
LOAN_SHARE: Final = 0.75
"""The part of the budget that pays the loan back. A run is within its budget once it has lasted for about the time of
the loan over the budget: some seconds, at most half a minute."""
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


class Governor:
    """Decide after each recorded step how many steps to skip, and at which level to go on.

    Level 0 records every target, each further one fewer, the last (``levels - 1``) only phases. ``budget`` is the
    fraction of training time that recording may cost; None means every step and all targets.
    """

    def __init__(self, budget: float | None, levels: int = 1, seed: int = 0) -> None:
        self.level = 0
        self._budget = None if budget is None else SPENDABLE_SHARE * budget
        self._levels = levels
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

    def after_recorded(self, step_ns: int, cost_ns: int, toggle_ns: int = 0, *, settles: bool = False) -> int:
        """Take the length of a recorded step and its measured cost; return how many steps to skip now.

        ``toggle_ns`` is the cost of attaching and detaching in a burst; a step that ``settles`` is excluded, and makes
        the burst longer. A gap of 0 goes on recording.
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
        if self._recorded < FIRST_STEPS:
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

    def compare(self, steps: int, elapsed_ns: int) -> None:
        """Compare the first ``steps`` of a gap with as many recorded ones before it."""
        if self._pairs.compare(steps, elapsed_ns) and self._pairs.count % MIN_PAIRS == 0:
            paired, counted = self.paired(), self._pairs.counted_cost
            if paired is not None and counted > 0:
                # Autoprof's timers miss cold caches and the like. The charge lies between the cost that the pairs
                # prove, which takes many of them to be enough, and the one they make likely, which one slow step may
                # exaggerate.
                self._recharge(min(max((paired.low + paired.cost) / (2 * counted), 1.0), MAX_CHARGE))

    def paired(self) -> PairedCost | None:
        """Return the cost found by pairs, or None while there are too few."""
        return self._pairs.cost(self._recorded / max(self._recorded + self._unsampled, 1))

    def _on_loan(self) -> bool:
        """Return whether the run is in its first steps; at their end turn the debt into the loan."""
        assert self._budget is not None
        if self._starting:
            debt_ns = max(-self._credit_ns, 0.0)
            if self._recorded + self._unsampled > START_STEPS or debt_ns >= MAX_LOAN_S * NS_PER_S * self._budget:
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
        self._credit_ns = min(self._credit_ns + earned_ns - paid_back_ns, most_ns)

    def _spend(self, ns: int) -> float:
        """Add to the measured cost; return the charge for it."""
        self._spent_ns += ns
        return self._charge * ns

    def _end_burst(self, toggle_ns: int) -> None:
        self._credit_ns -= self._spend(toggle_ns)
        self._burst = self._settled = self._in_row = 0

    def _gap(self) -> int:
        assert self._budget is not None
        earned_ns = self._budget * self._bare_ns * (1 - LOAN_SHARE if self._loan_ns else 1.0)
        steps = -self._credit_ns / earned_ns
        return max(ceil(steps * self._random.uniform(1 - GAP_SPREAD, 1 + GAP_SPREAD)), 1)

    def _learn(self, cost_ns: float) -> None:
        known = self._costs.get(self.level)
        self._costs[self.level] = cost_ns if known is None else known + COST_WEIGHT * (cost_ns - known)

    def _choose_level(self) -> None:
        """Drop modules when a burst is affordable too rarely; record them again when it is affordable often enough."""
        assert self._budget is not None
        affordable = self._budget * self._usual_ns
        if self._costs[self.level] > MAX_SAMPLE_INTERVAL * affordable and self.level < self._levels - 1:
            self.level += 1
        elif self.level and self._costs.get(self.level - 1, 0.0) * RESUME_FACTOR < MAX_SAMPLE_INTERVAL * affordable:
            self.level -= 1

    def _recharge(self, charge: float) -> None:
        """Charge by another factor, also for the past: the budget is the whole run's."""
        assert self._budget is not None
        owed, most = (charge - self._charge) * self._spent_ns, MAX_CREDIT_STEPS * self._budget * self._usual_ns
        self._charge = charge
        self._credit_ns -= min(max(owed, -most), most)
