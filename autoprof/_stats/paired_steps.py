"""The cost of recording, from pairs: recorded steps and the unsampled steps next to them."""

from __future__ import annotations

from collections import deque
from typing import Final

from ..summary import PairedCost
from .intervals import median_of_values

FIRST_STEPS: Final = 20
"""Steps at the start of a run that are recorded whatever they cost; paid back afterwards."""
START_STEPS: Final = 200
"""Steps at the start of a run that are recorded on a loan: many trials, tests and tutorials are no longer."""
COMPARED_STEPS: Final = 16
"""Recorded steps, settling ones included, that are compared with as many unsampled ones after them."""
CONTROL_INTERVAL: Final = 64
"""Steps recorded in a row before some are skipped although there is credit: the pairs need unsampled steps."""
FIRST_CONTROL_INTERVAL: Final = 22
"""``CONTROL_INTERVAL`` until there are ``MIN_PAIRS``."""
MIN_PAIRS: Final = 8
MAX_PAIRS: Final = 256
"""Pairs kept, the newest ones."""


class PairedSteps:
    """Collect pairs: the mean of some recorded steps, and that of as many unsampled ones next to them."""

    def __init__(self) -> None:
        self._pairs: deque[float] = deque(maxlen=MAX_PAIRS)
        self._recent: deque[tuple[int, int]] = deque(maxlen=COMPARED_STEPS)
        self.count = 0
        """The number of pairs so far."""
        self.counted_cost = 0.0
        """The mean cost of the recorded steps by autoprof's own clock, as a fraction of the unsampled ones."""

    @property
    def comparable(self) -> int:
        """The number of unsampled steps to compare: as many on either side.

        A step that takes long for reasons of its own then falls on both sides alike.
        """
        return len(self._recent)

    def add(self, step_ns: int, cost_ns: int) -> None:
        """Add a recorded step: its length, and its cost by autoprof's own clock."""
        self._recent.append((step_ns, cost_ns))

    def clear(self) -> None:
        """Forget the recorded steps that were not compared."""
        self._recent.clear()

    def compare(self, steps: int, elapsed_ns: int) -> bool:
        """Compare the newest recorded steps with as many unsampled ones; return whether there was a pair."""
        recent = list(self._recent)[-steps:]
        if steps <= 0 or elapsed_ns <= 0 or not recent:
            return False
        unsampled_ns = elapsed_ns / steps
        step_ns, cost_ns = (sum(column) / len(recent) for column in zip(*recent, strict=True))
        self._pairs.append(step_ns / unsampled_ns - 1.0)
        self.count += 1
        self.counted_cost += (cost_ns / unsampled_ns - self.counted_cost) / min(self.count, MAX_PAIRS)
        return True

    def cost(self, recorded: float) -> PairedCost | None:
        """Return the cost of a recorded step, or None while there are too few pairs; ``recorded`` is their fraction.

        It is a median, in which one step that takes minutes is one pair among many.
        """
        if len(self._pairs) < MIN_PAIRS:
            return None
        extra = median_of_values(tuple(self._pairs))
        return PairedCost(extra.middle, extra.low, extra.high, self.count, recorded)
