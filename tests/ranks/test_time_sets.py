"""Unions of intervals: no instant counts twice, however many intervals it is in."""

from __future__ import annotations

import random

from autoprof._metrics.time_sets import intersect, length, share_out, split_step, subtract, union

MS = 1_000_000
Intervals = list[tuple[int, int]]


def drawn(generator: random.Random, most: int = 60) -> Intervals:
    """Return intervals between 0 and ``most``, some of them empty."""
    starts = [generator.randrange(most) for _ in range(generator.randrange(8))]
    return [(start, min(start + generator.randrange(most // 3), most)) for start in starts]


def instants(intervals: Intervals) -> set[int]:
    """Return the instants in any of the intervals."""
    return {instant for begin, end in intervals for instant in range(begin, end)}


def test_unions_hold_the_instants_of_their_intervals() -> None:
    """Against sets of single instants, on 500 draws."""
    generator = random.Random(0)
    for _ in range(500):
        one, other = drawn(generator), drawn(generator)
        first, second = union(one), union(other)
        assert instants(first) == instants(one)
        assert length(first) == len(instants(one))
        assert instants(intersect(first, second)) == instants(one) & instants(other)
        assert instants(subtract(first, second)) == instants(one) - instants(other)


def test_the_parts_of_a_step_add_up_to_it() -> None:
    """Compute, exposed and idle, on 500 draws that overlap in every way and leave the step at both ends."""
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


def test_a_wait_for_several_counts_for_the_one_begun_first() -> None:
    """Each instant of the waits counts for at most one communication, on 500 draws."""
    generator = random.Random(2)
    for _ in range(500):
        waits, communication = union(drawn(generator)), drawn(generator)
        expected = [0] * len(communication)
        for instant in instants(waits):
            running = [at for at, (begin, end) in enumerate(communication) if begin <= instant < end]
            if running:
                expected[min(running, key=lambda at: (communication[at], at))] += 1
        assert share_out(waits, communication) == expected
