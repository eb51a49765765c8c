"""Memory on both sides: readings of the run over its steps, the largest of each run, and what names hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, log
from typing import Final

import numpy as np

from .._stats.intervals import MIN_STEPS, StepsMedian
from ..frame import Nanoseconds
from .contrast import RunEstimate, contrast
from .data import Change, Verdict
from .judge import Candidate, Scale, candidate, judge
from .series import RankSeries, RunSeries

_ONE: Final = "one largest reading a run: how much it varies takes several runs a side to tell"


def memory_changes(a: Sequence[RunSeries], b: Sequence[RunSeries], scale: Scale) -> tuple[Change, ...]:
    """Return the readings that both sides have, and the names that hold more or less than before."""
    levels = sorted(_common(a, "levels") & _common(b, "levels"))
    peaks = sorted(_common(a, "peaks") & _common(b, "peaks"))
    family = [_level(name, a, b) for name in levels] + [_peak(name, a, b) for name in peaks]
    return (*judge(family, scale, counts=False), *_held(a, b))


def _common(runs: Sequence[RunSeries], kind: str) -> set[str]:
    ranks = [set(getattr(rank, kind)) for run in runs for rank in run.ranks]
    return set.intersection(*ranks) if ranks else set()


def _level(name: str, a: Sequence[RunSeries], b: Sequence[RunSeries]) -> Candidate:
    """Judge a reading. With several runs a side a few readings of each will do: the runs are what is compared."""

    def pick(rank: RankSeries) -> Nanoseconds:
        return rank.levels[name]

    blank = Change(name, None, "bytes", None, None)
    return candidate(blank, a, b, pick, pick, fewest=MIN_STEPS if len(a) == len(b) == 1 else 1)


def _peak(name: str, a: Sequence[RunSeries], b: Sequence[RunSeries]) -> Candidate:
    runs_a, runs_b = ([_exact(max(rank.peaks[name] for rank in run.ranks)) for run in side] for side in (a, b))
    values = [exp(sum(run.log_center for run in runs) / len(runs)) for runs in (runs_a, runs_b)]
    change = Change(name, None, "bytes", round(values[0]), round(values[1]), steps_a=len(a), steps_b=len(b))
    if len(runs_a) == len(runs_b) == 1 and values[0] != values[1]:
        return Candidate(_plain(change, "inconclusive", _ONE), None)
    return Candidate(change, contrast(runs_a, runs_b))


def _exact(count: int) -> RunEstimate:
    value = log(max(count, 1))
    return RunEstimate((StepsMedian(np.array([value]), value, 0.0, inf),))


def _plain(change: Change, verdict: Verdict, why: str) -> Change:
    ratio = change.b / change.a if change.a and change.b is not None else None
    return Change(change.name, None, "bytes", change.a, change.b, ratio, verdict=verdict, why=why)


def _held(a: Sequence[RunSeries], b: Sequence[RunSeries]) -> list[Change]:
    """Counted bytes need no interval: a name holds as much, or it does not."""
    if not all(run.held for run in (*a, *b)):
        return []
    found = []
    for name in a[0].held:
        counts_a, counts_b = ({_get(run.held, name) for run in side} for side in (a, b))
        if None in counts_a | counts_b or counts_a == counts_b:
            continue
        one_a, one_b = max(counts_a, key=_or_zero), max(counts_b, key=_or_zero)
        change = Change(name, None, "bytes", one_a, one_b)
        if len(counts_a) > 1 or len(counts_b) > 1:
            found.append(_plain(change, "inconclusive", "the runs of one side hold different amounts"))
        else:
            found.append(_plain(change, "more" if _or_zero(one_b) > _or_zero(one_a) else "less", "counted"))
    return found


def _get(held: Mapping[str, int], name: str) -> int | None:
    return held.get(name)


def _or_zero(count: int | None) -> int:
    return count or 0
