"""Time that only some steps take, as a shard opened every eighth batch: its sum over the run, and its rhythm."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import log
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..base.frame import Layout, Nanoseconds, Phase
from ..base.stats.intervals import Interval, mean_from_moments, mean_ratio
from ..base.stats.median import median
from ..base.units import count, ordinal
from ._bounds import (
    CAUSE_SHARE,
    GOOD_PART,
    LONG_STEP,
    MANY_STEPS,
    MARGIN,
    MIN_SHARE,
    NEARLY_ALL,
    PATTERN,
    REPEATED,
)

Values = npt.NDArray[np.float64]

KEPT_STEPS: Final = 1024
"""Recorded steps whose times by phase are kept, the last ones."""
MAX_CHANCE: Final = 0.01
"""How often distances that have no rhythm may be multiples of one length by chance."""


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

    steps: tuple[int, ...]
    """Those of the rhythm, if there is one."""
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

    @property
    def steps(self) -> int:
        """The number of steps that were added."""
        return self._count

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

    def _times(
        self, phases: Collection[Phase] | None, explained: Mapping[int, float]
    ) -> tuple[npt.NDArray[np.int64], Values, Values]:
        """Return the numbers of the kept steps in their order, their lengths, and the times of some phases in them.

        Of all phases where these are None. Time that larger inputs explain, in multiples of the usual time, is left
        out of the times.
        """
        order = np.argsort(self._numbers[: self._count], kind="stable")
        numbers, lengths = self._numbers[order], self._lengths[order].astype(np.float64)
        columns = [self._phases[phase][order] for phase in phases or () if phase in self._phases]
        times = lengths if phases is None else np.sum([np.zeros(len(order)), *columns], axis=0)
        return numbers, lengths, times - _low_quarter(times) * (explained_times(numbers, explained) - 1)

    def mean(self, phase: Phase) -> Interval:
        """Return the mean time of a phase in the kept steps."""
        times = self._times((phase,), {})[2]
        return mean_from_moments(len(times), float(times.sum()), float((times**2).sum()))

    def rare(self, phases: Collection[Phase], explained: Mapping[int, float] = MappingProxyType({})) -> RareTime | None:
        """Return the time that at most half of the steps spend in these phases beyond the others.

        A step in ``explained`` may take as many times as long as the usual one.
        """
        if self._count < PATTERN:
            return None
        numbers, lengths, times = self._times(phases, explained)
        usual = _low_quarter(times)  # below the median, so that every second step is distinguished
        is_long = times > usual + max(usual, MIN_SHARE * lengths.mean())
        excess = _of_one_cause(np.where(is_long, times - usual, 0.0))
        is_long = excess > 0
        found = int(is_long.sum())
        if found < PATTERN or found > (1 - GOOD_PART) * len(times):
            return None
        when, every, _ = _describe(numbers, is_long)
        if 2 * found > len(times) + 1 and every is None and not when.startswith("the steps"):
            return None
        # Steps with every span longer, as by the wait for a processor, have no cause in these phases.
        like = self._times(None, explained)[2]
        if excess.sum() < CAUSE_SHARE * float((like[is_long] - _low_quarter(like)).sum()):
            return None
        share = mean_ratio(excess, lengths)
        if every is not None:  # each of these steps is long: only by how much is uncertain
            share = mean_from_moments(found, float(excess.sum()), float((excess**2).sum())).over(
                Interval.exact(float(lengths.sum()) / found)
            )
        rest = _elsewhere(lengths, times, is_long, ~is_long)
        return RareTime(tuple(numbers[is_long].tolist()), every, when, float(excess[is_long].mean()), share, rest)

    def growth(
        self, phases: Collection[Phase] | None = None, explained: Mapping[int, float] = MappingProxyType({})
    ) -> Growth | None:
        """Return the time of some phases, or of the whole step, where it rises from quarter to quarter of the run.

        What larger inputs explain, by step, is no rise.
        """
        if self._count < MANY_STEPS:
            return None
        _, lengths, times = self._times(phases, explained)
        quarters = [float(median(part)) for part in np.array_split(times, 4)]
        rises = all(later >= (1 + MARGIN) * earlier for earlier, later in pairwise(quarters))
        if not rises or quarters[-1] < REPEATED * max(quarters[0], 1.0):
            return None
        excess, places = np.maximum(times - quarters[0], 0.0), np.arange(len(times)) * 4 // len(times)
        rest = _elsewhere(lengths, times, places == 3, places == 0)
        return Growth(quarters[0], quarters[-1], float(excess.mean()), mean_ratio(excess, lengths), rest)

    def spread(self) -> Spread | None:
        """Return the steps that are long as a whole, and where their excess lies; None where no steps are."""
        if self._count < PATTERN:
            return None
        numbers, lengths, _ = self._times(None, {})
        usual = _low_quarter(lengths)
        excess = _of_one_cause(np.where(lengths > LONG_STEP * usual, lengths - usual, 0.0))
        is_long = excess > 0
        if is_long.sum() < PATTERN:
            return None
        times = {phase: self._times((phase,), {})[2] for phase in self._phases}
        parts = {phase: float((one[is_long] - _low_quarter(one)).sum() / excess.sum()) for phase, one in times.items()}
        when, every, steps = _describe(numbers, is_long)
        return Spread(steps, when, every, sorted(parts.items(), key=lambda part: -part[1]))


def explained_times(numbers: npt.NDArray[np.int64], explained: Mapping[int, float]) -> Values:
    """Return how many times as long as a usual step each may take; 1 for those that are not in ``explained``."""
    return np.array([explained.get(int(one), 1.0) for one in numbers], dtype=np.float64)


def _elsewhere(lengths: Values, times: Values, long: npt.NDArray[np.bool_], usual: npt.NDArray[np.bool_]) -> float:
    """Return by how much the rest of the long steps is longer, as a part of how much longer these times are."""

    def lengthened(some: Values) -> float:
        return float(median(some[long])) / max(float(median(some[usual])), 1.0) - 1

    return lengthened(lengths - times) / max(lengthened(times), 1e-9)


def _of_one_cause(excess: Values) -> Values:
    """Return the excess of long steps without the far shorter ones: a stall of the machine is another matter."""
    total = float(excess.sum())
    return excess if not total else np.where(excess >= GOOD_PART * float((excess**2).sum()) / total, excess, 0.0)


def _low_quarter(values: Values) -> float:
    """Return the value that a quarter of all are below."""
    return float(np.sort(values)[len(values) // 4])


def _describe(
    numbers: npt.NDArray[np.int64], is_long: npt.NDArray[np.bool_]
) -> tuple[str, int | None, tuple[int, ...]]:
    """Return the long steps in words, and the distance between them and those at it if they have a rhythm."""
    steps = numbers[is_long]
    first, last = int(steps[0]), int(steps[-1])
    began, ended = _begin(is_long), _begin(is_long[::-1])
    if began is not None:
        return f"the steps since {numbers[began]}", None, tuple(steps.tolist())
    if ended is not None:
        return f"the steps up to {numbers[-1 - ended]}", None, tuple(steps.tolist())
    begins = steps[np.diff(steps, prepend=steps[0] - 2) > 1]  # several in a row come at once, as at an epoch's end
    every = int(median(np.diff(begins))) if len(begins) > 1 else 0
    within = (numbers >= first) & (numbers <= last)
    rest = numbers % max(every, 1)
    long = np.bincount(rest[within & is_long], minlength=max(every, 1))
    due = np.flatnonzero(long >= NEARLY_ALL * np.bincount(rest[within], minlength=max(every, 1)).clip(1))
    # Recorded steps between the due ones show that these are not long. A distance is a multiple of ``every`` by chance
    # once in ``every`` times: all together hardly ever.
    agrees = long[due].sum() >= NEARLY_ALL * len(steps)
    is_regular = every > len(due) and agrees and (within & ~np.isin(rest, due)).sum() >= PATTERN
    if is_regular and (len(begins) - 1) * log(every) >= -log(MAX_CHANCE):
        when = f"every {ordinal(every)} step" if len(due) == 1 else f"{len(due)} of every {every} steps"
        return when, every, tuple(steps[np.isin(steps % every, due)].tolist())
    return f"{len(steps)} of {count(len(numbers), 'step')}", None, tuple(steps.tolist())


def _begin(is_long: npt.NDArray[np.bool_]) -> int | None:
    """Return the place from which on nearly all steps are long, and before which hardly any is; None without one."""
    later = is_long[::-1].cumsum()[::-1]
    shares_after, part = later / np.arange(len(is_long), 0, -1), later / later[0]
    found = np.flatnonzero(is_long & (shares_after >= NEARLY_ALL) & (part >= NEARLY_ALL))
    return int(found[0]) if len(found) and found[0] > 0 else None
