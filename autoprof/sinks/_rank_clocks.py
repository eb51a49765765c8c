"""Align the clocks of several hosts by the collectives that their ranks call together.

All ranks leave a collective nearly together, when the last of them has entered it. So the ends of common calls show the
difference of two clocks: a line over time, with an offset and a drift.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .._ranks import CallKey, CollectiveCall
from .._stats.intervals import median_of_values
from .._stats.median import median

Values = npt.NDArray[np.float64]
Calls = Mapping[CallKey, CollectiveCall]

MAX_DRIFT: Final = 5e-4
"""The largest drift of one clock against another: a quartz has 1e-4, and NTP corrects by at most 5e-4."""
FACTOR: Final = 3.0
"""The error of a line as a multiple of the distance that four fifths of the ends are within."""


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


class _ClockLine(NamedTuple):
    """A difference of clocks over time, in nanoseconds from an origin: ``offset + drift * x``."""

    offset: float
    drift: float
    error: float


def align_clocks(calls: Mapping[int, Calls], clocks: Mapping[int, Hashable | None]) -> dict[int, ClockShift]:
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


def _align_all(merged: Mapping[int, Calls], reference: int) -> dict[int, ClockShift]:
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


def _merge(calls: list[Calls]) -> Calls:
    """Return the calls of one clock: entered by the last of its ranks, left by the first."""
    merged = dict(calls[0])
    for others in calls[1:]:
        for key, call in others.items():
            known = merged.get(key)
            if known is not None:
                call = call._replace(start_ns=max(known.start_ns, call.start_ns), end_ns=min(known.end_ns, call.end_ns))
            merged[key] = call
    return merged


def _align(calls: Calls, by: Calls, known: ClockShift) -> ClockShift | None:
    """Return the shift of a clock by the calls that it has in common with a clock whose shift is known."""
    keys = sorted(calls.keys() & by.keys())
    keys = keys[:: -(-len(keys) // 512) or 1]
    if not keys or known.error_ns is None:
        return None
    left = [known.correct(by[key].end_ns) for key in keys]
    origin, offset = min(left), calls[keys[0]].end_ns - left[0]  # subtracted as integers: floats are too coarse
    x = np.array([ns - origin for ns in left], dtype=np.float64)
    ends = np.array([calls[key].end_ns - offset - ns for key, ns in zip(keys, left, strict=True)], dtype=np.float64)
    lengths = np.array([max(one[key].end_ns - one[key].start_ns for one in (calls, by)) for key in keys], dtype=float)
    # Calls from which a drift is estimated; of fewer, the shortest one gives the offset.
    line = _through(x, ends) if len(keys) >= 16 else _of_shortest(x, ends, lengths)
    excluded = np.abs(ends - line.offset - line.drift * x) > lengths + line.error
    # The share of calls that may contradict the line; with more, the clocks have nothing in common.
    if excluded.mean() > 0.2:
        return None
    error_ns = round(line.error) + known.error_ns
    return ClockShift(known.reference, origin, offset + line.offset, line.drift, error_ns, len(keys))


def _of_shortest(x: Values, ends: Values, lengths: Values) -> _ClockLine:
    """Return the offset by the shortest call: every rank enters it before any rank leaves it."""
    at = int(lengths.argmin())
    return _ClockLine(float(ends[at]), 0.0, float(lengths[at]) + MAX_DRIFT * float(np.abs(x - x[at]).max()))


def _through(x: Values, ends: Values) -> _ClockLine:
    """Return the line through the differences of ends, with an error of ``FACTOR`` times the distance of most ends.

    The drift is the median slope of pairs half the time apart (an incomplete Theil-Sen estimate), which a minority of
    late ends cannot change, or 0 where its interval includes 0.
    """
    order = np.argsort(x, kind="stable")
    x, ends, half = x[order], ends[order], len(x) // 2
    spans = x[half : 2 * half] - x[:half]
    slopes = (ends[half : 2 * half] - ends[:half])[spans > 0] / spans[spans > 0]
    drift = 0.0
    if len(slopes):
        low, middle, high = median_of_values(slopes)
        drift = 0.0 if low <= 0 <= high else float(np.clip(middle, -MAX_DRIFT, MAX_DRIFT))
    offset = float(median(ends - drift * x))
    distances = np.sort(np.abs(ends - drift * x - offset))
    return _ClockLine(offset, drift, FACTOR * float(distances[(len(x) - 1) * 4 // 5]) + 1)
