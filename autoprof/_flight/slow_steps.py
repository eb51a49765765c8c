"""The length from which a step is slow: one that the steps of the run so far make unlikely.

Lengths of healthy steps have heavy tails: a logging step each hundred, a loader that waits, another process. A limit of
some medians, or of some deviations, is exceeded by such steps again and again. The limit here is the smaller of two:

- the length that one step in a million exceeds, extrapolated from the longest twentieth of the recent steps as a power
  law, whose exponent is Hill's estimate with its error (Hill 1975, Annals of Statistics 3; Weissman 1978, JASA 73);
- a multiple of the longest step so far. Of ``n`` steps with a tail of exponent ``a``, the last one exceeds ``c`` times
  all others with a probability of about ``c ** -a / n``: in a run of 100,000 steps, less than once.

A step that was slow raises the limit: the same length later is no news.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

import numpy as np

from .._stats.median import median
from ..frame import Nanoseconds
from .ring import NEVER

WARMUP: Final = 10
"""The first steps, which allocate and compile, and count for nothing."""
MIN_STEPS: Final = 50
"""Further steps until the first limit."""
MIN_TAIL_STEPS: Final = 200
"""Recent steps from which their tail is known."""
TAIL: Final = 20
"""One step in so many belongs to the tail."""
RARITY: Final = 1e-6
"""The share of healthy steps that may exceed the extrapolated length."""
ERRORS: Final = 3.0
"""Standard errors that are added to the inverse of the exponent."""
OVER_LONGEST: Final = 4.0
"""The multiple of the longest step."""
MIN_FACTOR: Final = 1.5
"""A slow step is at least so many times as long as the median, …"""
MIN_EXCESS_NS: Final = 25_000_000
"""… at least so much longer than the median, …"""
MIN_OVER_RECENT: Final = 1.25
"""… so many times as long as the longest recent step, …"""
OVER_SLOW: Final = 2.0
"""… and so many times as long as the slow steps before it."""


def usual_length(lengths: Nanoseconds) -> int:
    """Return the median of some steps, 0 without any."""
    return round(float(median(lengths))) if len(lengths) else 0


def unlikely_length(lengths: Nanoseconds) -> float:
    """Return the length that one step in a million exceeds, by the tail of these; infinite where they are too few."""
    if len(lengths) < MIN_TAIL_STEPS:
        return float("inf")
    ordered = np.sort(lengths).astype(np.float64)
    tail = len(ordered) // TAIL
    threshold = float(ordered[-tail - 1])
    inverse = float(np.log(ordered[-tail:] / threshold).mean()) * (1 + ERRORS / tail**0.5)
    exceeded = inverse * log(tail / (len(ordered) * RARITY))
    return threshold * exp(exceeded) if exceeded < 50 else float("inf")


class SlowSteps:
    """The limit of one run; it is updated from the lengths of all steps."""

    def __init__(self) -> None:
        self.limit_ns = NEVER
        """The length above which a step is slow."""
        self.usual_ns = 0
        """The median of the recent steps."""
        self.longest_ns = 0
        """The longest of all steps after the warm-up that were not slow."""
        self._seen = 0
        self._slow: list[int] = []
        """The lengths of the slow steps, each at least twice the one before."""

    def update(self, recent: Nanoseconds, count: int) -> None:
        """Update the limit: ``count`` steps have ended, of which these are the last ones."""
        kept = recent[max(len(recent) - max(count - WARMUP, 0), 0) :]
        new, self._seen = kept[max(len(kept) - (count - self._seen), 0) :], count
        self.usual_ns = usual_length(kept if len(kept) else recent)
        for slow_ns in self._slow:
            kept, new = kept[kept != slow_ns], new[new != slow_ns]
        self.longest_ns = max(self.longest_ns, int(new.max()) if len(new) else 0)
        if count < WARMUP + MIN_STEPS:
            return
        usual_ns = self.usual_ns
        least = max(
            MIN_FACTOR * usual_ns,
            OVER_SLOW * max(self._slow, default=0),
            usual_ns + MIN_EXCESS_NS,
            MIN_OVER_RECENT * float(kept.max()) if len(kept) else 0.0,
        )
        self.limit_ns = round(max(min(unlikely_length(kept), OVER_LONGEST * self.longest_ns), least))

    def add_slow(self, length_ns: int) -> None:
        """Take over the length of a slow step: the next one must be longer."""
        self._slow.append(length_ns)
        self.limit_ns = max(self.limit_ns, round(OVER_SLOW * length_ns))
