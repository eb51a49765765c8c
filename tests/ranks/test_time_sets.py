"""The parts of a step: no instant counts twice, however many intervals it is in."""

from __future__ import annotations

import random

from autoprof._metrics.time_sets import split_step

Intervals = list[tuple[int, int]]


def drawn(generator: random.Random, most: int = 60) -> Intervals:
    """Return intervals between 0 and ``most``, some of them empty."""
    starts = [generator.randrange(most) for _ in range(generator.randrange(8))]
    return [(start, min(start + generator.randrange(most // 3), most)) for start in starts]


def instants(intervals: Intervals) -> set[int]:
    """Return the instants in any of the intervals."""
    return {instant for begin, end in intervals for instant in range(begin, end)}


def test_the_parts_of_a_step_add_up_to_it() -> None:
    """Compute, exposed and idle, on 500 draws that overlap in every way and leave the step at both ends.

    An exposed instant in several communications counts for the one begun first.
    """
    generator = random.Random(1)
    for _ in range(500):
        waits, idle, communication = ([(a - 5, b) for a, b in drawn(generator)] for _ in range(3))
        parts = split_step(50, waits, idle, communication)
        step = set(range(50))
        exposed = instants(waits) & step
        resting = instants(idle) & step - exposed
        assert parts.exposed_ns == len(exposed)
        assert parts.idle_ns == len(resting)
        assert parts.compute_ns == 50 - len(exposed) - len(resting)
        assert parts.overlapped_ns == len(instants(communication) & step - exposed - resting)
        first = sorted((begin, end, at) for at, (begin, end) in enumerate(communication))
        owners = [next((at for begin, end, at in first if begin <= now < end), -1) for now in exposed]
        assert parts.shares == [owners.count(at) for at in range(len(communication))]
