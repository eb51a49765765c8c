"""Sets of instants as sorted intervals that do not overlap: unions, so that no instant counts twice."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

Interval = tuple[int, int]
"""Begin and end in nanoseconds."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same instants as intervals in order, none of which overlaps or touches another."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = merged[-1][0], end
        else:
            merged.append((begin, end))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """Return the time of intervals that do not overlap."""
    return sum(end - begin for begin, end in intervals)


def intersect(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """Return the instants that are in both unions."""
    common: list[Interval] = []
    at = to = 0
    while at < len(one) and to < len(other):
        begin, end = max(one[at][0], other[to][0]), min(one[at][1], other[to][1])
        if begin < end:
            common.append((begin, end))
        if one[at][1] < other[to][1]:
            at += 1
        else:
            to += 1
    return common


def subtract(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """Return the instants of the first union that are not in the second."""
    left: list[Interval] = []
    at = 0
    for begin, end in one:
        while at < len(other) and other[at][1] <= begin:
            at += 1
        to = at
        while to < len(other) and other[to][0] < end:
            if other[to][0] > begin:
                left.append((begin, other[to][0]))
            begin = max(begin, other[to][1])
            to += 1
        if begin < end:
            left.append((begin, end))
    return left


class StepParts(NamedTuple):
    """The parts of a step: ``compute_ns + exposed_ns + idle_ns`` is its length, exactly.

    ``overlapped_ns`` is communication during ``compute_ns``.
    """

    compute_ns: int
    exposed_ns: int
    idle_ns: int
    overlapped_ns: int


def split_step(
    step_ns: int, waits: Iterable[Interval], idle: Iterable[Interval], communication: Iterable[Interval]
) -> StepParts:
    """Split a step by the intervals in which it waits for communication, and in which it waits for other things.

    An instant that is in both is exposed communication. Parts of intervals outside of the step do not count.
    """
    step = [(0, step_ns)]
    exposed = intersect(union(waits), step)
    resting = subtract(intersect(union(idle), step), exposed)
    computing = subtract(subtract(step, exposed), resting)
    overlapped = intersect(union(communication), computing)
    return StepParts(length(computing), length(exposed), length(resting), length(overlapped))


def share_out(waits: list[Interval], intervals: list[Interval]) -> list[int]:
    """Return the part of the waits in each interval; an instant in several of them counts for the one begun first.

    ``waits`` is a union. The parts add up to at most its length.
    """
    shares = [0] * len(intervals)
    order = sorted(range(len(intervals)), key=lambda at: intervals[at])
    running: list[tuple[int, int]] = []  # (place in the order, index), the one begun first at the top
    next_up = 0
    for begin, end in waits:
        now = begin
        while now < end:
            while next_up < len(order) and intervals[order[next_up]][0] <= now:
                heappush(running, (next_up, order[next_up]))
                next_up += 1
            while running and intervals[running[0][1]][1] <= now:
                heappop(running)
            following = intervals[order[next_up]][0] if next_up < len(order) else end
            if not running:
                now = min(max(following, now), end)
                continue
            until = min(end, intervals[running[0][1]][1])
            shares[running[0][1]] += until - now
            now = until
    return shares
