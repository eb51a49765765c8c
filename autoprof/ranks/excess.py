"""Decide by how much, how often and how surely a rank takes longer than the others in the same steps.

No distribution of times is assumed: the steps in which a rank is above the median of the others are counted, and its
difference is compared with the differences among the other ranks, for no two processors are equally fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..base.frame import Nanoseconds
from ..base.stats.intervals import Interval, median_of_values
from ..base.stats.median import median

Times = npt.NDArray[np.float64]
Kind = Literal["persistent", "recurring", "one-off"]

ERROR: Final = 0.001
"""The chance of accusing a rank where all are equal, over all ranks and rows together."""
MIN_SHARE: Final = 0.05
"""All ranks lose the excess of one rank: a twentieth of the step on 8 GPUs is nearly half a GPU."""
SPREADS: Final = 3.0
"""A slow rank is this many times as far from the others' median as the others are, in a late step twice as many."""
ONE_OFF_STEPS: Final = 8.0
"""Median steps that a single event takes at least: a healthy rank of a busy virtual machine lost seven once."""
ONE_OFF_NS: Final = 100_000_000
"""The least time of a single event: schedulers, garbage collections and disks delay any process by tens of ms."""
MIN_RECURRING: Final = 3
"""Times that an excess occurs before it recurs; fewer are single events."""


@dataclass(frozen=True, slots=True)
class Excess:
    """The time in one row by which a rank, the one at ``at``, exceeds the median of the others.

    ``ns`` is the excess in a step with its interval: the median of a persistent one, else the mean over all steps.
    ``late`` are the indices of the steps in which it occurs; all that are above the others for a persistent one.
    """

    at: int
    kind: Kind
    ns: Interval
    late: tuple[int, ...]
    period: int | None = None


class LateSteps(NamedTuple):
    """The steps of one row in which ranks are later than usual: their excess by rank and index of the step."""

    weight: float
    """The chance that a delay of a rank, whatever its reason, falls into this row: its part of the time."""
    late_ns: dict[int, dict[int, float]]


def median_of_others(times: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return for each rank the median of the other ranks' times, in each column.

    ``times`` has one row for each of at least two ranks. Unlike a mean, the median ignores another slow rank.
    """
    values = np.asarray(times, dtype=np.float64)
    order = np.argsort(values, axis=0, kind="stable")
    place = np.argsort(order, axis=0, kind="stable")
    ascending = np.take_along_axis(values, order, axis=0)
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2  # the middle places among the others
    lower = np.where(place <= low, ascending[low + 1], ascending[low])
    upper = np.where(place <= high, ascending[high + 1], ascending[high])
    middle: npt.NDArray[np.float64] = (lower + upper) / 2
    return middle


def persistent_excess(times: Times, step_ns: float, comparisons: int, *, min_share: float = MIN_SHARE) -> list[Excess]:
    """Return the ranks that take longer than the others in most steps; ``times`` is by rank and step.

    ``comparisons`` is the number of rows of that size, with which the chance of an error is shared. ``min_share`` is
    the least excess as a part of ``step_ns``.
    """
    ranks, count = times.shape
    excess = times - median_of_others(times)
    middles = median(excess, axis=1)
    below = _most_below(count, 10 * ERROR / max(ranks * comparisons, 1))
    if below is None:
        return []
    usual = median(times, axis=1)
    found = []
    for at in np.flatnonzero(middles >= min_share * step_ns).tolist():
        interval = median_of_values(excess[at])
        others = np.delete(usual, at)
        spread = float(median(np.abs(others - median(others)))) if ranks > 2 else 0.0
        if (
            interval.low >= min_share * step_ns
            and float(np.sort(excess[at])[below]) > 0
            and usual[at] - float(median(others)) >= SPREADS * spread
            and _lasts(excess[at], interval.middle)
        ):
            found.append(Excess(at, "persistent", interval, tuple(np.flatnonzero(excess[at] > 0).tolist())))
    return found


def late_steps(times: Times, step_ns: float, own_ns: float) -> LateSteps:
    """Return the steps in which ranks are later than usual in one row; ``own_ns`` is the usual time of all rows."""
    excess = times - median_of_others(times)
    beyond = excess - np.maximum(median(excess, axis=1), 0)[:, None]
    bound = max(2 * MIN_SHARE * step_ns, 2 * SPREADS * 1.4826 * float(median(np.abs(beyond))))
    found: dict[int, dict[int, float]] = {}
    for at, index in np.argwhere(beyond >= bound).tolist():
        found.setdefault(at, {})[index] = float(beyond[at, index])
    usual = float(median(times))
    return LateSteps(min(max(usual / max(own_ns, 1.0), 1 / 20), 1.0), found)


def rare_excess(
    rows: Sequence[LateSteps], steps: Nanoseconds, lengths: Times, *, min_share: float = MIN_SHARE / 2
) -> list[tuple[int, Excess]]:
    """Return the excess that occurs in some of the steps, each with the index of its row, the largest first.

    ``steps`` are the numbers of the compared steps, ``lengths`` their lengths by rank. ``min_share`` is the least part
    of all time. An excess has to be twice that of any other rank: equal ones on several ranks are the machine's.
    """
    ranks, count = lengths.shape
    step_ns = float(median(lengths))
    sizes_of = [{at: _event_sizes(late) for at, late in row.late_ns.items()} for row in rows]
    everything = np.concatenate([np.zeros(0), *(sizes for by_rank in sizes_of for sizes in by_rank.values())])
    largest = np.zeros(ranks)
    sums = np.zeros(ranks)
    for by_rank in sizes_of:
        for at, sizes in by_rank.items():
            largest[at] = max(largest[at], sizes.max())
            sums[at] += sizes.sum()
    found: list[tuple[int, Excess]] = []
    for number, row in enumerate(rows):
        for at, late in row.late_ns.items():
            sizes = sizes_of[number][at]
            if sizes.sum() < min_share * step_ns * count:
                continue
            events = events_of(late)
            if 2 * (sizes.sum() - sizes.max()) <= sizes.max():  # one event is much larger than all others
                event = events[int(sizes.argmax())]
                least_ns = max(ONE_OFF_NS, ONE_OFF_STEPS * step_ns, 2 * np.delete(largest, at).max())
                ns, longer_ns = sum(late[index] for index in event), (lengths[at, event] - step_ns).sum()
                if ns >= least_ns and 2 * longer_ns >= ns:
                    found.append((number, Excess(at, "one-off", _mean(late, count), tuple(event))))
                continue
            period = find_period(steps, late)
            least_ns = float(median(sizes)) / 4  # every process has small delays, which say nothing about large ones
            large = int((sizes >= least_ns).sum())
            chance = binomial_tail(large, int((everything >= least_ns).sum()), row.weight / ranks)
            if period is not None:
                chance *= min(float(period) ** (1 - large) * count, 1.0)  # that events at random are so far apart
            alone = period is not None or sums[at] >= 2 * np.delete(sums, at).max()
            is_surprising = chance * ranks * len(rows) <= ERROR
            if alone and is_surprising and len(events) >= MIN_RECURRING and 2 * len(late) < count:
                found.append((number, Excess(at, "recurring", _mean(late, count), tuple(sorted(late)), period)))
    return sorted(found, key=lambda entry: -entry[1].ns.middle)


def find_period(steps: Nanoseconds, late: Mapping[int, float]) -> int | None:
    """Return the number of steps after which late steps recur; None where they are not regular.

    ``late`` has the excess by index of the step. Not all steps are compared: a period holds for those that are.
    """
    # The part of the late time that fits a period, and of the period's steps that are late.
    most = 0.8
    if len(late) < MIN_RECURRING:
        return None
    indices = sorted(late)
    numbers, ns = steps[indices], np.array([late[index] for index in indices])
    largest = numbers[2 * ns >= float(median(ns))]
    for period in sorted({int(gap) for gap in np.diff(largest)} | {int(np.gcd.reduce(np.diff(largest)))}):
        if period < 2:
            continue
        phases = numbers % period
        sums = {phase: float(ns[phases == phase].sum()) for phase in set(phases.tolist())}
        phase = max(sums, key=lambda one: sums[one])
        fits, of_period = int((phases == phase).sum()), int((steps % period == phase).sum())
        if sums[phase] >= most * float(ns.sum()) and fits >= max(most * of_period, MIN_RECURRING):
            return period
    return None


def binomial_tail(least: int, count: int, chance: float) -> float:
    """Return the probability of at least ``least`` successes among ``count``; ``chance`` is between 0 and 1."""
    logs = (
        lgamma(count + 1) - lgamma(n + 1) - lgamma(count - n + 1) + n * log(chance) + (count - n) * log1p(-chance)
        for n in range(least, count + 1)
    )
    return min(sum(map(exp, logs)), 1.0)


def _most_below(count: int, error: float) -> int | None:
    """Return how many of ``count`` fair coins fall on one side at most with this chance; None: not even none."""
    tail = 0.0
    for number in range(count + 1):
        tail += exp(lgamma(count + 1) - lgamma(number + 1) - lgamma(count - number + 1) - count * log(2))
        if tail > error:
            return number - 1 if number else None
    return None


def _lasts(excess: Times, middle: float) -> bool:
    """Return whether an excess is there in at least three quarters of the steps, at half its size or more."""
    if len(excess) < 20:
        return True
    return sum(2 * float(median(part)) >= middle for part in np.array_split(excess, 4)) >= 3


def events_of(late: dict[int, float]) -> list[list[int]]:
    """Return the late steps in runs of neighbours: one delay may cover several steps."""
    events: list[list[int]] = []
    for index in sorted(late):
        if events and index == events[-1][-1] + 1:
            events[-1].append(index)
        else:
            events.append([index])
    return events


def _event_sizes(late: dict[int, float]) -> Times:
    return np.array([sum(late[index] for index in event) for event in events_of(late)])


def _mean(late: dict[int, float], count: int) -> Interval:
    """Return the mean over all steps. Its uncertainty is that of the number of late steps (a Poisson number)."""
    mean = sum(late.values()) / count
    half = mean * 1.96 / len(late) ** 0.5
    return Interval(max(mean - half, 0.0), mean, mean + half)
