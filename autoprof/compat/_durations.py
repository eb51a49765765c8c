"""Durations that a program measures itself, as one frame per step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..base.frame import LOGGED_LANE, Layout, Phase, StepFrame


class Duration(NamedTuple):
    """One call of ``log_timing``, at ``end_ns``."""

    name: str
    ns: int
    end_ns: int
    thread: int

    @property
    def start_ns(self) -> int:
        """The start, if the duration was logged at its end."""
        return self.end_ns - self.ns


class StepBuilder:
    """Build the frames of steps. Durations of one name in a step add up and are counted."""

    def __init__(self, now_ns: int) -> None:
        self._begin_ns = now_ns
        self._number = 0

    def build(self, durations: Sequence[Duration], now_ns: int, thread: int, overhead_ns: int) -> tuple[StepFrame, int]:
        """Build the step that ends at ``now_ns``; return its frame and the time that names cover.

        The step begins at the end of the one before, the first at its first duration. Only durations of the training
        ``thread`` cover it. It lasts at least as long as its longest name, because replayed durations are logged fast.
        """
        self._number += 1
        if self._number == 1 and durations:
            self._begin_ns = max(self._begin_ns, min(one.start_ns for one in durations))
        by_name: dict[str, list[Duration]] = {}
        for one in durations:
            by_name.setdefault(one.name, []).append(one)
        own_ns: Counter[str] = Counter()
        covered_ns, reached_ns = 0, self._begin_ns
        for one in sorted(durations, key=lambda one: one.start_ns):
            if one.thread == thread:
                own_ns[one.name] += one.ns
                covered_ns += max(one.end_ns - max(one.start_ns, reached_ns), 0)
                reached_ns = max(reached_ns, one.end_ns)
        longest_ns = max(own_ns.values(), default=0)
        step_ns = max(now_ns - self._begin_ns, longest_ns)
        starts = [max(calls[0].start_ns - self._begin_ns, 0) for calls in by_name.values()]
        frame = StepFrame(
            step=self._number,
            start_unix_ns=time.time_ns() - step_ns,
            duration_ns=step_ns,
            layout=_layout(tuple((name, len(calls)) for name, calls in by_name.items())),
            start_ns=np.array(starts, np.int64),
            host_ns=np.array([sum(one.ns for one in calls) for calls in by_name.values()], np.int64),
            overhead_ns=overhead_ns,
        )
        self._begin_ns = now_ns
        return frame, max(longest_ns, covered_ns)


@lru_cache(maxsize=128)
def _layout(calls: tuple[tuple[str, int], ...]) -> Layout:
    count = len(calls)
    return Layout(
        names=tuple(name for name, _ in calls),
        fqns=(None,) * count,
        phases=(Phase.USER,) * count,
        parents=(-1,) * count,
        calls=tuple(number for _, number in calls),
        lanes=(LOGGED_LANE,) * count,
    )
