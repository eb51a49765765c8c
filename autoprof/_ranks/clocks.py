"""Align the clocks of several hosts by the collectives that their ranks call together.

No rank leaves a collective before every rank of its group has entered it. So each call bounds the difference of two
clocks from both sides: the time at which one rank leaves is no earlier than the time at which another one enters. The
true difference, a line over time (offset and drift), runs between all lower and all upper bounds. That is the method of
Duda et al. ("Estimating global time in distributed systems", 1987) with collectives in the place of messages; Scalasca
extends the same conditions to collectives (Becker et al., "Scalable timestamp synchronization for event traces", 2009).
Where one rank is always the last to enter, one side of the bounds is wide: there the ends of the calls, at which all
ranks leave nearly together, are the better evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

import numpy as np
import numpy.typing as npt

from .._stats.intervals import median_of_values
from .._stats.median import median
from .calls import CallKey, CollectiveCall

Values = npt.NDArray[np.float64]

MAX_DRIFT: Final = 5e-4
"""The largest drift of one clock against another: a quartz has 1e-4, and NTP corrects by at most 5e-4."""
MIN_ENDS: Final = 16
"""Calls from which ends of calls are compared."""
MAX_LEFT_OUT: Final = 0.2
"""The share of bounds that may contradict the others and are left out then."""
MAX_CALLS: Final = 512
"""Calls used of a pair of clocks, evenly spread."""
ITERATIONS: Final = 60
"""Steps of a search, each of which leaves two thirds of the range or less: of a drift, less than 1e-13 at the end."""


@dataclass(frozen=True, slots=True)
class ClockShift:
    """The difference of a rank's clock to the clock of the ``reference`` rank: offset at ``origin_ns``, and drift.

    ``error_ns`` limits the error of the difference during the ``calls`` it is estimated from; 0 for ranks on one
    clock, None where the difference is unknown.
    """

    reference: int
    origin_ns: int = 0
    offset_ns: float = 0.0
    drift: float = 0.0
    error_ns: int | None = 0
    calls: int = 0

    def correct(self, unix_ns: int) -> int:
        """Return the time on the reference's clock of a time on the rank's clock."""
        since_ns = unix_ns - self.origin_ns - self.offset_ns
        return unix_ns - round(self.offset_ns + self.drift / (1 + self.drift) * since_ns)


@dataclass(frozen=True, slots=True)
class _ClockLine:
    """A difference of clocks over time, in nanoseconds from an origin: ``offset + drift * x``."""

    offset: float
    drift: float
    error: float

    def at(self, x: Values) -> Values:
        """Return the differences at these times."""
        return self.offset + self.drift * x


def align_clocks(
    calls: Mapping[int, Mapping[CallKey, CollectiveCall]], clocks: Mapping[int, Hashable | None]
) -> dict[int, ClockShift]:
    """Return the shift of each rank's clock to that of the lowest rank.

    Ranks with equal ``clocks`` (the same host) have one clock; None is a clock of its own. A clock without calls in
    common with the reference is aligned through the clock with which it has most in common.
    """
    if not calls:
        return {}
    reference = min(calls)
    members: dict[Hashable, list[int]] = {}
    for rank in sorted(calls):
        clock = clocks.get(rank)
        members.setdefault(("rank", rank) if clock is None else ("clock", clock), []).append(rank)
    merged = {ranks[0]: _merge([calls[rank] for rank in ranks]) for ranks in members.values()}
    first_of = {rank: ranks[0] for ranks in members.values() for rank in ranks}
    shifts = _align_all(merged, reference)
    unknown = ClockShift(reference, error_ns=None)
    return {rank: shifts.get(first_of[rank], unknown) for rank in calls}


def _align_all(merged: Mapping[int, Mapping[CallKey, CollectiveCall]], reference: int) -> dict[int, ClockShift]:
    """Return the shifts of the clocks that can be aligned: with the reference, or through a clock that is aligned."""
    shifts = {reference: ClockShift(reference)}
    pairs: list[tuple[int, int, int]] = []

    def align(first: int, by: int) -> None:
        shift = _align(merged[first], merged[by], shifts[by])
        if shift is None:
            return
        shifts[first] = shift
        for other in merged.keys() - shifts.keys():
            common = len(merged[other].keys() & merged[first].keys())
            if common:
                heappush(pairs, (-common, other, first))

    for first in merged:
        if first != reference:
            align(first, reference)
    while pairs:
        _, first, by = heappop(pairs)
        if first not in shifts:
            align(first, by)
    return shifts


def _merge(calls: list[Mapping[CallKey, CollectiveCall]]) -> Mapping[CallKey, CollectiveCall]:
    """Return the calls of one clock: entered by the last of its ranks, left by the first."""
    if len(calls) == 1:
        return calls[0]
    merged = dict(calls[0])
    for others in calls[1:]:
        for key, call in others.items():
            known = merged.get(key)
            if known is not None:
                call = call._replace(start_ns=max(known.start_ns, call.start_ns), end_ns=min(known.end_ns, call.end_ns))
            merged[key] = call
    return merged


def _align(
    calls: Mapping[CallKey, CollectiveCall], by: Mapping[CallKey, CollectiveCall], known: ClockShift
) -> ClockShift | None:
    """Return the shift of a clock by the calls that it has in common with a clock whose shift is known."""
    keys = sorted(calls.keys() & by.keys())
    keys = keys[:: -(-len(keys) // MAX_CALLS) or 1]
    if not keys or known.error_ns is None:
        return None
    entered, left = ([known.correct(getattr(by[key], end)) for key in keys] for end in ("start_ns", "end_ns"))
    origin, offset = min(entered), calls[keys[0]].end_ns - left[0]  # subtracted as integers: floats are too coarse
    starts, ends = ([getattr(calls[key], end) - offset for key in keys] for end in ("start_ns", "end_ns"))
    at_left, at_entered = _differences(left, [origin] * len(keys)), _differences(entered, [origin] * len(keys))
    bounds = _Bounds(at_left, _differences(starts, left), at_entered, _differences(ends, entered))
    line = _choose(at_left, _between(bounds), _through(at_left, _differences(ends, left)))
    if line is None:
        return None
    error_ns = round(line.error) + known.error_ns
    return ClockShift(known.reference, origin, offset + line.offset, line.drift, error_ns, len(keys))


def _choose(x: Values, bounded: _ClockLine | None, middle: _ClockLine | None) -> _ClockLine | None:
    """Return the line with the smaller error: that of the ends only where the bounds do not exclude it."""
    if bounded is None or middle is None:
        return bounded or middle
    difference = float(np.abs(bounded.at(x) - middle.at(x)).max())
    return middle if middle.error < bounded.error and difference <= bounded.error else bounded


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Lower and upper bounds of a difference, each with the time at which it holds."""

    x_low: Values
    low: Values
    x_high: Values
    high: Values

    def lower(self, drift: float) -> float:
        """Return the least offset that a line of this drift may have."""
        return float((self.low - drift * self.x_low).max())

    def upper(self, drift: float) -> float:
        """Return the largest offset that a line of this drift may have."""
        return float((self.high - drift * self.x_high).min())

    def margin(self, drift: float) -> float:
        """Return half the range of offsets; negative where the bounds contradict each other. It is concave."""
        return (self.upper(drift) - self.lower(drift)) / 2

    def without_worst(self, drift: float) -> _Bounds:
        """Leave out the lowest upper or the highest lower bound: the one that more bounds of the other side exclude."""
        low, high = self.low - drift * self.x_low, self.high - drift * self.x_high
        if (high < low.max()).sum() >= (low > high.min()).sum():
            kept = np.arange(len(low)) != low.argmax()
            return _Bounds(self.x_low[kept], self.low[kept], self.x_high, self.high)
        kept = np.arange(len(high)) != high.argmin()
        return _Bounds(self.x_low, self.low, self.x_high[kept], self.high[kept])

    def violation(self, line: _ClockLine) -> float:
        """Return by how much a line violates the bound that it violates most; 0 where it violates none."""
        low, high = self.low - line.at(self.x_low), line.at(self.x_high) - self.high
        return max(float(low.max()), float(high.max()), 0.0)


def _differences(left: list[int], right: list[int]) -> Values:
    return np.array([one - other for one, other in zip(left, right, strict=True)], dtype=np.float64)


def _between(bounds: _Bounds) -> _ClockLine | None:
    """Return the line that is farthest from all bounds, and how far a line between them can be from it.

    Bounds that contradict the others are left out, at most ``MAX_LEFT_OUT``; where they still do, the result is None.
    The error includes by how much the line violates them. The drift is 0 where that lies well between the bounds.
    """
    kept = bounds
    for _ in range(int(MAX_LEFT_OUT * len(bounds.low)) + 1):
        drift = _largest(kept.margin, -MAX_DRIFT, MAX_DRIFT)
        if kept.margin(drift) >= 0:
            line = _with_error(kept, 0.0 if 2 * kept.margin(0.0) >= kept.margin(drift) else drift)
            return replace(line, error=line.error + bounds.violation(line))
        kept = kept.without_worst(drift)
    return None


def _with_error(bounds: _Bounds, drift: float) -> _ClockLine:
    offset = bounds.lower(drift) + bounds.margin(drift)
    least = _crossing(bounds.margin, drift, -MAX_DRIFT)
    most = _crossing(bounds.margin, drift, MAX_DRIFT)
    error = 0.0
    for at in (float(bounds.x_low.min()), float(bounds.x_low.max())):

        def highest(slope: float, at: float = at) -> float:
            return bounds.upper(slope) + slope * at

        def lowest(slope: float, at: float = at) -> float:
            return -bounds.lower(slope) - slope * at

        here = offset + drift * at
        error = max(error, highest(_largest(highest, least, most)) - here)
        error = max(error, here + lowest(_largest(lowest, least, most)))
    return _ClockLine(offset, drift, error)


def _largest(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a concave function is largest."""
    for _ in range(ITERATIONS):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if function(left) < function(right):
            low = left
        else:
            high = right
    return (low + high) / 2


def _crossing(function: Callable[[float], float], inside: float, outside: float) -> float:
    """Return the point nearest to ``outside`` at which the function is not negative, as it is ``inside``."""
    if function(outside) >= 0:
        return outside
    for _ in range(ITERATIONS):
        between = (inside + outside) / 2
        inside, outside = (between, outside) if function(between) >= 0 else (inside, between)
    return inside


def _through(x: Values, values: Values) -> _ClockLine | None:
    """Return the line through the differences of ends, and the distance that 95 % of them are within.

    The drift is the median slope of pairs half the time apart (an incomplete Theil-Sen estimate), which a minority of
    late ends cannot change, or 0 where its interval includes 0.
    """
    count = len(x)
    if count < MIN_ENDS:
        return None
    order = np.argsort(x, kind="stable")
    x, values, half = x[order], values[order], count // 2
    spans = x[half : 2 * half] - x[:half]
    slopes = (values[half : 2 * half] - values[:half])[spans > 0] / spans[spans > 0]
    drift = 0.0
    if len(slopes):
        low, middle, high = median_of_values(slopes)
        drift = 0.0 if low <= 0 <= high else float(np.clip(middle, -MAX_DRIFT, MAX_DRIFT))
    offset = float(median(values - drift * x))
    distances = np.sort(np.abs(values - drift * x - offset))
    return _ClockLine(offset, drift, float(distances[int(0.95 * (count - 1))]))
