"""Durations that a program measures itself: one frame per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from .._reports.name_tree import parent_name
from ..frame import LOGGED_LANE, TRAINING_LANE, Layout, Phase, StepFrame

MAX_LAYOUTS: Final = 128
"""Layouts remembered. A program that invents names in each step needs a new layout in each step."""


class Duration(NamedTuple):
    """One call of ``log_timing``."""

    name: str
    ns: int
    end_ns: int
    """The time of the call."""
    thread: int

    @property
    def start_ns(self) -> int:
        """The start, if the duration was logged at its end."""
        return self.end_ns - self.ns


class TimedStep(NamedTuple):
    """The frame of one step, and the time in it that names cover."""

    frame: StepFrame
    covered_ns: int


class StepBuilder:
    """Build the frames of steps from durations. Durations of one name in a step add up and are counted."""

    def __init__(self, now_ns: int) -> None:
        self._begin_ns = now_ns
        self._number = 0

    def build(
        self, durations: Sequence[Duration], now_ns: int, now_unix_ns: int, thread: int, overhead_ns: int = 0
    ) -> TimedStep:
        """Build the step that ends at ``now_ns``; ``thread`` is the training thread.

        The step lasts from the end of the one before (the first: from the start of its first duration). It is at least
        as long as its longest name: replayed durations are logged faster than they passed.
        """
        self._number += 1
        if self._number == 1 and durations:
            self._begin_ns = max(self._begin_ns, min(one.start_ns for one in durations))
        totals: dict[str, int] = {}
        calls: dict[str, int] = {}
        starts: dict[str, int] = {}
        for one in durations:
            totals[one.name] = totals.get(one.name, 0) + one.ns
            calls[one.name] = calls.get(one.name, 0) + 1
            starts.setdefault(one.name, max(one.start_ns - self._begin_ns, 0))
        own = [one for one in durations if one.thread == thread]
        longest = max((totals[one.name] for one in own), default=0)
        step_ns = max(now_ns - self._begin_ns, longest)
        frame = StepFrame(
            step=self._number,
            start_unix_ns=now_unix_ns - step_ns,
            duration_ns=step_ns,
            layout=_layout(tuple(calls.items())),
            start_ns=np.fromiter(starts.values(), np.int64, len(starts)),
            host_ns=np.fromiter(totals.values(), np.int64, len(totals)),
            overhead_ns=overhead_ns,
        )
        covered_ns = max(longest, self._covered_ns(own))
        self._begin_ns = now_ns
        return TimedStep(frame, min(covered_ns, step_ns))

    def _covered_ns(self, durations: Sequence[Duration]) -> int:
        """Return the time covered by at least one of these; 0 where one began clearly before the step."""
        if any(one.start_ns + one.ns // 100 < self._begin_ns for one in durations):
            return 0  # replayed, or measured by another clock
        covered = reached = 0
        for start, end in sorted((one.start_ns, one.end_ns) for one in durations):
            if end > reached:
                covered += end - (max(start, reached) if covered else start)
                reached = end
        return covered


@lru_cache(maxsize=MAX_LAYOUTS)
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


@lru_cache(maxsize=MAX_LAYOUTS)
def _training_layout(layout: Layout) -> Layout:
    names = {name: at for at, name in enumerate(layout.names)}
    parents = [names[outer] if (outer := parent_name(name, names)) is not None else -1 for name in layout.names]
    return replace(layout, parents=tuple(parents), lanes=(TRAINING_LANE,) * len(layout))


def on_training_lane(frame: StepFrame) -> StepFrame:
    """Return the frame with its names on the training lane, where the rules search the causes of long steps."""
    return replace(frame, layout=_training_layout(frame.layout))
