"""Split the time of a step into sets of instants, so that none counts twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..frame import Nanoseconds

Interval = tuple[int, int]
"""Begin and end in nanoseconds."""


class StepParts(NamedTuple):
    """The parts of a step: ``compute_ns + exposed_ns + idle_ns`` is its length, exactly.

    ``overlapped_ns`` is communication during ``compute_ns``. ``shares`` are the parts of ``exposed_ns`` in each
    communication; an instant in several of them counts for the one begun first.
    """

    compute_ns: int
    exposed_ns: int
    idle_ns: int
    overlapped_ns: int
    shares: list[int]


def split_step(
    step_ns: int, waits: Iterable[Interval], idle: Iterable[Interval], communication: Sequence[Interval]
) -> StepParts:
    """Split a step by the intervals in which it waits for communication, and in which it waits for other things.

    An instant that is in both is exposed communication. Parts of intervals outside of the step do not count.
    """
    kinds = [
        np.clip(np.array([*one], dtype=np.int64).reshape(-1, 2), 0, step_ns) for one in (waits, idle, communication)
    ]
    edges = np.sort(np.concatenate([[0, step_ns], *(one.ravel() for one in kinds)]))
    lengths = np.diff(edges)
    places = [np.searchsorted(edges, one) for one in kinds]
    exposed, resting, communicating = (_covered(one, len(lengths)) for one in places)
    computing = ~(exposed | resting)
    owners = np.full(len(lengths), -1)
    for at in sorted(range(len(communication)), key=lambda at: (communication[at], at), reverse=True):
        begin, end = places[2][at]
        owners[begin:end] = at
    parts = [computing, exposed, resting & ~exposed, communicating & computing]
    compute_ns, exposed_ns, idle_ns, overlapped_ns = (int(lengths[part].sum()) for part in parts)
    shares = [int(lengths[exposed & (owners == at)].sum()) for at in range(len(communication))]
    return StepParts(compute_ns, exposed_ns, idle_ns, overlapped_ns, shares)


def _covered(places: Nanoseconds, segments: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each segment between two edges whether one of these intervals covers it."""
    covered = np.zeros(segments, dtype=np.bool_)
    for begin, end in places:
        covered[begin:end] = True
    return covered


def covered_ns(intervals: Iterable[Interval]) -> int:
    """Return the time that intervals cover; common time counts once."""
    total = latest = 0
    for begin, end in sorted(intervals):
        total += max(end - max(begin, latest), 0)
        latest = max(latest, end)
    return total
