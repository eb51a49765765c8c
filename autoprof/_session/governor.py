"""Keep the cost of recording under a budget: which steps are recorded, and with how many modules.

Time earns, recording spends. Each nanosecond of training earns ``budget`` nanoseconds of credit; a recorded step spends
what it cost. Steps are recorded while there is credit, and when it is spent they are left alone for as many steps as
earn it back. Whatever a step costs, the run as a whole stays inside its budget, and there is nothing to converge:
the first recorded step already says how long the first gap has to be.

Steps are recorded in bursts, because putting hooks on and taking them off costs as much as a step. Gaps vary by half
their length at random, so that no period of the training is always hit or always missed.
"""

from __future__ import annotations

import random
from collections import deque
from math import ceil, floor, sqrt
from statistics import median
from typing import Final

from ..summary import PairedCost

MAX_SAMPLE_INTERVAL: Final = 500
"""Steps per recorded step, above which modules are dropped: rarer samples say too little about a run."""
RESUME_FACTOR: Final = 2.0
"""How much more often than ``MAX_SAMPLE_INTERVAL`` a finer level must be affordable before it is taken up again."""
BURST_STEPS: Final = 8
"""Steps recorded in a row at least after a gap, those not counted that settle."""
MIN_SETTLING_STEPS: Final = 2
"""The first steps of a burst, kept apart: what records them, and what closes the first of them, is in no cache yet."""
SETTLING_NS: Final = 3_000_000
"""And as many more as it takes to record for so long. In steps of 0.3 ms a layer of four small operations read 5 % too
long in the third to the eighth one, in those of 1 ms 2 % in the third, in those of 10 ms nothing was left by then
(found with the witness of ``benchmarks.budget``, step by step of a burst). The reason is most likely code that is in no
cache and no branch predictor yet."""
MAX_SETTLING_STEPS: Final = 8
COMPARED_STEPS: Final = BURST_STEPS + MAX_SETTLING_STEPS
"""Recorded steps, those that settle too, that are compared with as many bare ones after them."""
FIRST_STEPS: Final = 20
"""Steps that are always recorded, so that short runs and tired people see something; the debt is paid back after."""
CONTROL_INTERVAL: Final = 64
"""Steps recorded in a row before some are left alone although there is credit: the other half of the pairs."""
FIRST_CONTROL_INTERVAL: Final = 14
"""The same until there are ``MIN_PAIRS``."""
CONTROL_STEPS: Final = 2
COST_WEIGHT: Final = 0.25
"""Weight of the newest cost in the running estimate."""
MIN_PAIRS: Final = 8
SPENDABLE_SHARE: Final = 0.6
"""The part of the budget that is spent: the rest is for what is on nobody's clock, or is found out late."""
MAX_CREDIT_STEPS: Final = 256
"""Steps whose credit can be saved up: what a slow hour has earned is not spent on a fast one."""
MAX_CHARGE: Final = 4.0
"""How many times its own account a step is charged at most."""
MAX_PAIRS: Final = 256
"""Pairs remembered, the newest ones."""


class Governor:
    """Decide after each recorded step how many steps to leave alone, and at which level to go on.

    Level 0 records every target, each further one fewer, the last (``levels - 1``) only phases. ``budget`` is the
    fraction of training time that recording may cost; None means every step and all targets.
    """

    def __init__(self, budget: float | None, levels: int = 1, seed: int = 0) -> None:
        self.level = 0
        self._budget = None if budget is None else SPENDABLE_SHARE * budget
        self._levels = levels
        self._random = random.Random(seed)
        self._credit_ns = 0.0
        self._in_burst = 0
        self._settled = 0
        self._in_row = 0
        self._bare_ns = 0.0
        self._usual_ns = 0.0
        self._costs: dict[int, float] = {}
        self._recorded = 0
        self._left = 0
        self._spent_ns = 0
        self._charge = 1.0
        self._own = 0.0
        self._pairs: deque[float] = deque(maxlen=MAX_PAIRS)
        self._paired = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=COMPARED_STEPS)

    @property
    def active(self) -> bool:
        """Whether there is a budget to keep."""
        return self._budget is not None

    def recorded(self, step_ns: int, cost_ns: int, toggle_ns: int = 0, *, settles: bool = False) -> int:
        """Take the length of a recorded step and its cost by our own clock; return how many steps to leave alone now.

        ``toggle_ns`` is what putting the hooks on and off costs a burst; a step that ``settles`` is kept apart, and
        makes it longer. A gap of 0 goes on recording.
        """
        self._recorded += 1
        if self._budget is None:
            return 0
        self._in_burst += 1
        self._settled += settles
        self._in_row += 1
        self._recent.append((step_ns, cost_ns))
        bare_ns = max(step_ns - cost_ns, 1)
        if not self._bare_ns:
            self._bare_ns = self._usual_ns = float(bare_ns)
        self._earn(self._budget * bare_ns - self._spend(cost_ns))
        self._learn(self._charge * (cost_ns + toggle_ns / self._in_burst))
        if self._recorded < FIRST_STEPS:
            return 0
        if self._credit_ns - self._charge * toggle_ns >= 0:
            if self._in_row < (CONTROL_INTERVAL if self._paired >= MIN_PAIRS else FIRST_CONTROL_INTERVAL):
                return 0
            self._end_burst(toggle_ns)
            self._choose_level()
            return CONTROL_STEPS
        if self._in_burst - self._settled < BURST_STEPS:
            return 0
        self._end_burst(toggle_ns)
        self._choose_level()
        return self._gap()

    def left_alone(self, steps: int, elapsed_ns: int, spent_ns: int = 0) -> None:
        """Take the length of a gap that is over: ``steps`` steps without hooks, ``elapsed_ns`` together.

        ``spent_ns`` of it went into work of ours, on the steps recorded before.
        """
        if steps <= 0 or elapsed_ns <= 0:
            return
        self._left += steps
        self._bare_ns = elapsed_ns / steps
        self._usual_ns += COST_WEIGHT * (self._bare_ns - self._usual_ns)
        if self._budget is not None:
            self._earn(self._budget * elapsed_ns - self._spend(spent_ns))
        self._recent.clear()

    @property
    def bare_ns(self) -> float:
        """How long a step without hooks was last; 0 where none is known."""
        return self._bare_ns

    @property
    def comparable(self) -> int:
        """How many steps of a gap the recorded ones before it are compared with: as many on either side.

        A step that takes long for reasons of its own then falls on both sides alike.
        """
        return len(self._recent)

    def compare(self, steps: int, elapsed_ns: int) -> None:
        """Take the first ``steps`` of a gap, and compare as many recorded ones with them."""
        recent = list(self._recent)[-steps:]
        if steps <= 0 or elapsed_ns <= 0 or not recent:
            return
        bare_ns = elapsed_ns / steps
        step_ns, cost_ns = (sum(column) / len(recent) for column in zip(*recent, strict=True))
        self._pair(step_ns / bare_ns - 1.0, cost_ns / bare_ns)

    def paired(self) -> PairedCost | None:
        """Return the cost found by pairs, or None while there are too few to say.

        The interval is that of the median by its order statistics (Conover, "Practical Nonparametric Statistics",
        3rd edition, 3.2): one step that takes minutes is one pair among many.
        """
        count = len(self._pairs)
        if count < MIN_PAIRS:
            return None
        pairs = sorted(self._pairs)
        outside = max(floor((count - 1.96 * sqrt(count)) / 2), 0)
        recorded = self._recorded / (self._recorded + self._left)
        return PairedCost(median(pairs), pairs[outside], pairs[count - 1 - outside], self._paired, recorded)

    def _earn(self, ns: float) -> None:
        assert self._budget is not None
        self._credit_ns = min(self._credit_ns + ns, MAX_CREDIT_STEPS * self._budget * self._bare_ns)

    def _spend(self, ns: int) -> float:
        """Return what this much of our own account is charged at."""
        self._spent_ns += ns
        return self._charge * ns

    def _end_burst(self, toggle_ns: int) -> None:
        self._credit_ns -= self._spend(toggle_ns)
        self._in_burst = self._settled = self._in_row = 0

    def _gap(self) -> int:
        assert self._budget is not None
        steps = -self._credit_ns / (self._budget * self._bare_ns)
        return max(ceil(steps * self._random.uniform(0.75, 1.25)), 1)

    def _learn(self, cost_ns: float) -> None:
        known = self._costs.get(self.level)
        self._costs[self.level] = cost_ns if known is None else known + COST_WEIGHT * (cost_ns - known)

    def _choose_level(self) -> None:
        """Drop modules when a burst is affordable too seldom; take them up again when it is often enough by far."""
        assert self._budget is not None
        affordable = self._budget * self._usual_ns
        if self._costs[self.level] > MAX_SAMPLE_INTERVAL * affordable and self.level < self._levels - 1:
            self.level += 1
        elif self.level and self._costs.get(self.level - 1, 0.0) * RESUME_FACTOR < MAX_SAMPLE_INTERVAL * affordable:
            self.level -= 1

    def _pair(self, extra: float, own: float) -> None:
        self._pairs.append(extra)
        self._paired += 1
        self._own += (own - self._own) / min(self._paired, MAX_PAIRS)
        if self._paired % MIN_PAIRS == 0:
            paired = self.paired()
            if paired is not None and self._own > 0:
                # Cold caches and the like are on nobody's clock. What is charged is between what the pairs prove, which
                # takes many of them to be enough, and what they make likely, which one slow step may exaggerate.
                self._recharge(min(max((paired.low + paired.cost) / (2 * self._own), 1.0), MAX_CHARGE))

    def _recharge(self, charge: float) -> None:
        """Charge by another measure, what was spent so far too: the budget is the whole run's."""
        assert self._budget is not None
        owed, most = (charge - self._charge) * self._spent_ns, MAX_CREDIT_STEPS * self._budget * self._usual_ns
        self._charge = charge
        self._credit_ns -= min(max(owed, -most), most)
