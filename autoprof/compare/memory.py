"""Memory on both sides: readings over the steps, the largest reading of each run, and the bytes held by names."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log
from typing import Final

import numpy as np

from .._stats.intervals import MIN_STEPS, StepsMedian
from ..frame import Nanoseconds
from .contrast import RunEstimate, contrast
from .data import Change, Verdict
from .series import RankSeries, RunSeries
from .verdicts import Candidate, Limits, candidate, give_verdicts

_ONE_READING: Final = "one largest reading a run: its variation is known only with several runs a side"


def memory_changes(a: Sequence[RunSeries], b: Sequence[RunSeries], limits: Limits) -> tuple[Change, ...]:
    """Return the readings that both sides have, and the names whose held bytes changed."""
    levels = sorted(_common(a, "levels") & _common(b, "levels"))
    peaks = sorted(_common(a, "peaks") & _common(b, "peaks"))
    family = [_level(name, a, b) for name in levels] + [_peak(name, a, b) for name in peaks]
    return (*give_verdicts(family, limits, has_limit=False), *_held(a, b))


def _common(runs: Sequence[RunSeries], kind: str) -> set[str]:
    ranks = [set(getattr(rank, kind)) for run in runs for rank in run.ranks]
    return set.intersection(*ranks) if ranks else set()


def _level(name: str, a: Sequence[RunSeries], b: Sequence[RunSeries]) -> Candidate:
    """Compare a reading. With several runs a side one reading of each suffices, because the runs are compared."""

    def column(rank: RankSeries) -> Nanoseconds:
        return rank.levels[name]

    blank = Change(name, None, "bytes", None, None)
    return candidate(blank, a, b, column, column, fewest=MIN_STEPS if len(a) == len(b) == 1 else 1)


def _peak(name: str, a: Sequence[RunSeries], b: Sequence[RunSeries]) -> Candidate:
    runs_a, runs_b = ([_exact(max(rank.peaks[name] for rank in run.ranks)) for run in side] for side in (a, b))
    values = [exp(sum(run.log_center for run in runs) / len(runs)) for runs in (runs_a, runs_b)]
    change = Change(name, None, "bytes", round(values[0]), round(values[1]), steps_a=len(a), steps_b=len(b))
    if len(runs_a) == len(runs_b) == 1 and values[0] != values[1]:
        return Candidate(_without_interval(change, "inconclusive", _ONE_READING), None)
    return Candidate(change, contrast(runs_a, runs_b))


def _exact(count: int) -> RunEstimate:
    value = log(max(count, 1))
    return RunEstimate((StepsMedian(np.array([value]), value, 0.0, inf),))


def _without_interval(change: Change, verdict: Verdict, why: str) -> Change:
    ratio = change.b / change.a if change.a and change.b is not None else None
    return Change(change.name, None, "bytes", change.a, change.b, ratio, verdict=verdict, why=why)


def _held(a: Sequence[RunSeries], b: Sequence[RunSeries]) -> list[Change]:
    """Return the names whose counted bytes differ; counts are exact and have no interval."""
    if not all(run.held for run in (*a, *b)):
        return []
    found = []
    for name in a[0].held:
        counts_a, counts_b = ({run.held.get(name, -1) for run in side} for side in (a, b))
        if -1 in counts_a | counts_b or counts_a == counts_b:
            continue
        change = Change(name, None, "bytes", max(counts_a), max(counts_b))
        if len(counts_a) > 1 or len(counts_b) > 1:
            found.append(_without_interval(change, "inconclusive", "the runs of one side hold different amounts"))
        else:
            more = max(counts_b) > max(counts_a)
            found.append(_without_interval(change, "more" if more else "less", "counted"))
    return found
