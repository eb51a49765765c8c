"""Find the steps in which Python ran a full garbage collection, from the collector's own counters.

``gc.callbacks`` would also give the duration. It is not used: an exception in a callback is printed and lost, and a
Ctrl-C during a long collection is raised in the first Python code after it, which would be the callback.
"""

from __future__ import annotations

import gc
from collections import deque


class CollectionTracker:
    """Remember the steps with a full collection."""

    def __init__(self) -> None:
        self.steps: deque[int] = deque(maxlen=1024)
        self.count = 0
        self._last_step = 0
        self._collections = -1

    def step(self, step: int, step_ns: int) -> None:
        """Record whether a collection ran in a closed step; after unsampled steps the count is only refreshed."""
        # A full collection visits about 150,000 objects that importing torch creates, so a shorter step had none and
        # the counters are not read. With cold caches reading them takes 6 µs, as long as all metrics at the end of a
        # step.
        if step_ns < 2_000_000 and step == self._last_step + 1:
            self._last_step = step
            return
        collections = gc.get_stats()[2]["collections"]
        if collections != self._collections:
            if step == self._last_step + 1 and self._collections >= 0:
                self.steps.append(step)
                self.count += 1
            self._collections = collections
        self._last_step = step
