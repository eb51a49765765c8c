"""Find the steps in which communication itself takes longer than usual, on all ranks.

The rank that comes last to a collective waits for no other: its time is that of the communication itself, and in each
step the shortest of all ranks. Whose connection is slow cannot be seen in it, for all ranks wait alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._stats.median import median
from ..frame import Nanoseconds
from .excess import (
    ERROR,
    MIN_RECURRING,
    MIN_SHARE,
    ONE_OFF_NS,
    ONE_OFF_STEPS,
    Kind,
    Times,
    chance_of_period,
    events_of,
    find_period,
    find_single_event,
    late_bound,
)


@dataclass(frozen=True, slots=True)
class LateComm:
    """Communication that takes longer in some steps: by ``ns`` on average over all steps.

    ``late`` is the number of these steps; the first of them are ``steps``, and ``period`` their distance where they
    recur. ``longest_ns`` is the largest excess in one step.
    """

    kind: Kind
    ns: int
    longest_ns: int
    late: int
    steps: tuple[int, ...]
    period: int | None = None


def find_late_comm(comm: Times, steps: Nanoseconds, lengths: Times, explained: frozenset[int]) -> LateComm | None:
    """Return the communication that is longer in some steps; ``comm`` and ``lengths`` are by rank and step.

    ``explained`` are the indices of the steps in which a rank is slow. Without a period only a single event counts:
    other ranks, with which an irregular one could be compared, have it too. Where most steps communicate nothing,
    those that do are no late ones.
    """
    pure = comm.min(axis=0)
    usual = float(median(pure))
    if usual <= 0:
        return None
    step_ns, count = float(median(lengths)), len(steps)
    beyond = pure - usual
    bound = late_bound(beyond, step_ns)
    late = {at: float(beyond[at]) for at in np.flatnonzero(beyond >= bound).tolist() if at not in explained}
    if sum(late.values()) < MIN_SHARE / 2 * step_ns * count:
        return None
    events = events_of(late)
    single = find_single_event(late, events)
    if single is not None:
        ns = sum(late[at] for at in single)
        return _made("one-off", single, late, steps) if ns >= max(ONE_OFF_NS, ONE_OFF_STEPS * step_ns) else None
    period = find_period(steps, late)
    if period is None or len(events) < MIN_RECURRING or 2 * len(late) >= count:
        return None
    if chance_of_period(period, len(events), count) > ERROR:
        return None
    return _made("recurring", sorted(late), late, steps, period)


def _made(kind: Kind, at: list[int], late: dict[int, float], steps: Nanoseconds, period: int | None = None) -> LateComm:
    ns = [late[index] for index in at]
    numbers = tuple(steps[at[:8]].tolist())
    return LateComm(kind, round(sum(ns) / len(steps)), round(max(ns)), len(at), numbers, period)
