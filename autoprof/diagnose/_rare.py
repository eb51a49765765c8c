"""Time that only some steps take, as a shard opened every eighth batch: its sum over the run, and its rhythm."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import log
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .._core.units import count, ordinal
from .._stats.intervals import Interval, mean_from_moments, mean_ratio
from .._stats.median import median
from ..frame import Layout, Nanoseconds, Phase
from ._bounds import CAUSE_SHARE, MIN_SHARE

KEPT_STEPS: Final = 1024
"""Recorded steps whose times by phase are kept, the last ones."""
MIN_LONG: Final = 3
"""Long steps from which on they are a pattern: two may be one stall of the machine across two steps."""
MIN_TREND: Final = 32
"""Recorded steps whose quarters show a trend."""
MIN_RISE: Final = 1.1
"""Each quarter of the run over the one before, from which on steps get longer."""
MAX_TIMES: Final = 1.5
"""The last quarter over the first one."""
SAME_CAUSE: Final = 0.25
"""The least excess of a long step, as a fraction of their mean that is weighted by the excess."""
REGULAR: Final = 0.8
"""Fraction of the steps that a rhythm, a begin or an end explains; a stall of the machine falls out of it."""
MOST_LONG: Final = 0.7
"""The most long steps, as a fraction: a quarter of all shows what is usual."""


class RareTime(NamedTuple):
    """Time of some steps beyond that of the others."""

    steps: tuple[int, ...]
    every: int | None
    """The distance of the long steps, if it is nearly always the same or a multiple."""
    when: str
    """These steps in words: ``every 8th step``, ``the steps since 81``, or ``20 of 160 steps``."""
    excess_ns: float
    """The mean excess of a long step."""
    share: Interval
    """All excess over the time of all steps."""
    elsewhere: float = 0.0
    """By how much the rest of these steps is longer, as a part of how much longer the phases are: 1 where all is."""

    @property
    def has_pattern(self) -> bool:
        """Whether these steps have a rhythm, a begin or an end."""
        return self.every is not None or self.when.startswith("the steps")


class Spread(NamedTuple):
    """Steps that are long as a whole, their rhythm, and each phase's part of their excess, the largest first."""

    when: str
    every: int | None
    parts: list[tuple[Phase, float]]


class Growth(NamedTuple):
    """A time that rises: its median in the first and last quarter of the run, and its mean excess over the first."""

    first_ns: float
    last_ns: float
    excess_ns: float
    share: Interval
    """All excess over the time of all steps."""
    elsewhere: float = 0.0
    """By how much the rest of the step rises, as a part of this rise: 1 where all rises alike."""


class PhaseSeries:
    """The self times by phase of the last recorded steps, in constant memory."""

    def __init__(self) -> None:
        self._numbers = np.zeros(KEPT_STEPS, dtype=np.int64)
        self._lengths = np.zeros(KEPT_STEPS, dtype=np.int64)
        self._phases: dict[Phase, Nanoseconds] = {}
        self._count = 0

    def add(self, numbers: Sequence[int], lengths: Sequence[int], layout: Layout, total_ns: Nanoseconds) -> None:
        """Add steps of one layout: their numbers, their lengths, and the times of their spans (steps × spans)."""
        places = (self._count + np.arange(len(numbers))) % KEPT_STEPS
        self._count += len(numbers)
        self._numbers[places] = numbers
        self._lengths[places] = lengths
        for column in self._phases.values():
            column[places] = 0
        own, outside = layout.self_ns(total_ns), np.asarray(lengths) - total_ns[:, layout.roots].sum(axis=1)
        times = [(phase, own[:, spans].sum(axis=1)) for phase, spans in layout.phase_groups]
        for phase, ns in (*times, (Phase.OTHER, outside)):
            column = self._phases.setdefault(phase, np.zeros(KEPT_STEPS, dtype=np.int64))
            column[places] = ns

    def rare(self, phases: Collection[Phase], explained: Mapping[int, float] = MappingProxyType({})) -> RareTime | None:
        """Return the time that at most half of the steps spend in these phases beyond the others.

        A step in ``explained`` may take as many times as long as the usual one.
        """
        columns = [self._phases[phase] for phase in phases if phase in self._phases]
        among = min(self._count, KEPT_STEPS)
        if not columns or among < MIN_LONG:
            return None
        order = np.argsort(self._numbers[:among], kind="stable")
        numbers, lengths = self._numbers[order], self._lengths[order].astype(np.float64)
        times = np.sum([column[order] for column in columns], axis=0).astype(np.float64)
        times = _beyond_inputs(times, numbers, explained)
        usual = _low_quarter(times)  # below the median, so that every second step is distinguished
        is_long = times > usual + max(usual, MIN_SHARE * lengths.mean())
        excess = _of_one_cause(np.where(is_long, times - usual, 0.0))
        is_long = excess > 0
        found = int(is_long.sum())
        if found < MIN_LONG or found > MOST_LONG * among:
            return None
        when, every = _describe(numbers, is_long)
        if 2 * found > among + 1 and every is None and not when.startswith("the steps"):
            return None
        # Steps with every span longer, as by the wait for a processor, have no cause in these phases.
        like = _beyond_inputs(lengths, numbers, explained)
        longer = float((like[is_long] - _low_quarter(like)).sum())
        if excess.sum() < CAUSE_SHARE * longer:
            return None
        share = mean_ratio(excess, lengths)
        if every is not None:  # each of these steps is long: only by how much is uncertain
            share = mean_from_moments(found, float(excess.sum()), float((excess**2).sum())).over(
                Interval.exact(float(lengths.sum()) / found)
            )
        rest = _lengthened(lengths - times, is_long, ~is_long) / max(_lengthened(times, is_long, ~is_long), 1e-9)
        return RareTime(tuple(numbers[is_long].tolist()), every, when, float(excess[is_long].mean()), share, rest)

    def growth(
        self, phases: Collection[Phase] | None = None, explained: Mapping[int, float] = MappingProxyType({})
    ) -> Growth | None:
        """Return the time of some phases, or of the whole step, where it rises from quarter to quarter of the run.

        What larger inputs explain, by step, is no rise.
        """
        among = min(self._count, KEPT_STEPS)
        columns = [self._phases[phase] for phase in phases or () if phase in self._phases]
        if among < MIN_TREND or (phases is not None and not columns):
            return None
        order = np.argsort(self._numbers[:among], kind="stable")
        lengths = self._lengths[order].astype(np.float64)
        times = lengths if phases is None else np.sum([one[order] for one in columns], axis=0).astype(np.float64)
        times = _beyond_inputs(times, self._numbers[order], explained)
        quarters = [float(median(part)) for part in np.array_split(times, 4)]
        rises = all(later >= MIN_RISE * earlier for earlier, later in pairwise(quarters))
        if not rises or quarters[-1] < MAX_TIMES * quarters[0]:
            return None
        excess, places = np.maximum(times - quarters[0], 0.0), np.arange(among) * 4 // among
        last, first = places == 3, places == 0
        rest = _lengthened(lengths - times, last, first) / max(_lengthened(times, last, first), 1e-9)
        return Growth(quarters[0], quarters[-1], float(excess.mean()), mean_ratio(excess, lengths), rest)

    def spread(self) -> Spread | None:
        """Return the steps that are long as a whole, and where their excess lies; None where no steps are."""
        among = min(self._count, KEPT_STEPS)
        if not among:
            return None
        order = np.argsort(self._numbers[:among], kind="stable")
        lengths = self._lengths[order].astype(np.float64)
        usual = _low_quarter(lengths)
        excess = _of_one_cause(np.where(lengths > 2 * usual, lengths - usual, 0.0))
        is_long = excess > 0
        if is_long.sum() < MIN_LONG:
            return None
        times = {phase: column[order].astype(np.float64) for phase, column in self._phases.items()}
        parts = {phase: float((one[is_long] - _low_quarter(one)).sum() / excess.sum()) for phase, one in times.items()}
        when, every = _describe(self._numbers[order], is_long)
        return Spread(when, every, sorted(parts.items(), key=lambda part: -part[1]))


def explained_times(numbers: npt.NDArray[np.int64], explained: Mapping[int, float]) -> npt.NDArray[np.float64]:
    """Return how many times as long as a usual step each may take; 1 for those that are not in ``explained``."""
    return np.array([explained.get(int(one), 1.0) for one in numbers], dtype=np.float64)


def _beyond_inputs(
    times: npt.NDArray[np.float64], numbers: npt.NDArray[np.int64], explained: Mapping[int, float]
) -> npt.NDArray[np.float64]:
    """Return times without the part that larger inputs explain, in multiples of the usual time of the low quarter."""
    return times - _low_quarter(times) * (explained_times(numbers, explained) - 1)


def _lengthened(times: npt.NDArray[np.float64], long: npt.NDArray[np.bool_], usual: npt.NDArray[np.bool_]) -> float:
    """Return by which fraction the median of some times is longer than that of others."""
    return float(median(times[long])) / max(float(median(times[usual])), 1.0) - 1


def _of_one_cause(excess: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the excess of long steps without the far shorter ones: a stall of the machine is another matter."""
    total = float(excess.sum())
    return excess if not total else np.where(excess >= SAME_CAUSE * float((excess**2).sum()) / total, excess, 0.0)


def _low_quarter(values: npt.NDArray[np.float64]) -> float:
    """Return the value that a quarter of all are below."""
    return float(np.sort(values)[len(values) // 4])


def _describe(numbers: npt.NDArray[np.int64], is_long: npt.NDArray[np.bool_]) -> tuple[str, int | None]:
    """Return the long steps in words, and the distance between them if they have a rhythm."""
    steps = numbers[is_long]
    first, last = int(steps[0]), int(steps[-1])
    began, ended = _begin(is_long), _begin(is_long[::-1])
    if began is not None:
        return f"the steps since {numbers[began]}", None
    if ended is not None:
        return f"the steps up to {numbers[-1 - ended]}", None
    begins = steps[np.diff(steps, prepend=steps[0] - 2) > 1]  # several in a row come at once, as at an epoch's end
    every = int(median(np.diff(begins))) if len(begins) > 1 else 0
    within = (numbers >= first) & (numbers <= last)
    rest = numbers % max(every, 1)
    long = np.bincount(rest[within & is_long], minlength=max(every, 1))
    due = np.flatnonzero(long >= REGULAR * np.bincount(rest[within], minlength=max(every, 1)).clip(1))
    # Recorded steps between the due ones show that these are not long. A distance is a multiple of ``every`` by chance
    # once in ``every`` times: all together at most once in a hundred.
    agrees = long[due].sum() >= REGULAR * len(steps)
    is_regular = every > len(due) and agrees and (within & ~np.isin(rest, due)).sum() >= MIN_LONG
    if is_regular and (len(begins) - 1) * log(every) >= log(100):
        return f"every {ordinal(every)} step" if len(due) == 1 else f"{len(due)} of every {every} steps", every
    return f"{len(steps)} of {count(len(numbers), 'step')}", None


def _begin(is_long: npt.NDArray[np.bool_]) -> int | None:
    """Return the place from which on nearly all steps are long, and before which hardly any is; None without one."""
    later = is_long[::-1].cumsum()[::-1]
    shares_after, part = later / np.arange(len(is_long), 0, -1), later / later[0]
    found = np.flatnonzero(is_long & (shares_after >= REGULAR) & (part >= REGULAR))
    return int(found[0]) if len(found) and found[0] > 0 else None
