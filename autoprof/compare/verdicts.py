"""From series to verdicts: differences that exceed the variation between steps and between runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log, log1p
from typing import Final

import numpy as np

from .._stats.intervals import LEVEL, MIN_STEPS, StepsMean, StepsMedian, Values, holm
from .._units import count, format_ns
from .contrast import Contrast, RunEstimate, contrast
from .data import Change, Over, Verdict
from .series import RankSeries, RunSeries

ALPHA: Final = 1 - LEVEL
Column = Callable[[RankSeries], Values | None]
"""Return one column of a rank, None where the rank does not have it."""
Estimator = type[StepsMedian] | type[StepsMean]


@dataclass(frozen=True, slots=True)
class Limits:
    """Fractions: a change within ``margin`` is the same; one beyond ``limit`` fails (None: nothing fails)."""

    margin: float
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change before its test. ``contrast`` is None where nothing can be tested, and ``change.why`` says why.

    ``inverse`` candidates are tested by the inverse of the value shown: the time of a sample for samples a second.
    ``comparable`` is False where the sides did different work, so that the limit does not apply.
    """

    change: Change
    contrast: Contrast | None
    inverse: bool = False
    comparable: bool = True


@dataclass(frozen=True, slots=True)
class SideEstimate:
    """One column of one side: the estimates of its runs, the fewest steps of a run, and the center over all runs."""

    runs: tuple[RunEstimate, ...]
    steps: int
    center: float | None


def estimate(
    runs: Sequence[RunSeries], column: Column, *, fewest: int = MIN_STEPS, of: Estimator = StepsMedian
) -> SideEstimate:
    """Estimate the median (or the mean) of a column; runs with fewer than ``fewest`` steps give no estimate."""
    center = np.median if of is StepsMedian else np.mean
    estimates: list[RunEstimate] = []
    steps: list[int] = []
    logs: list[float] = []
    for run in runs:
        columns = [values for values in map(column, run.ranks) if values is not None and len(values)]
        if columns:
            steps.append(min(map(len, columns)))
            logs.append(float(np.mean([np.log(np.maximum(center(values), 1e-9)) for values in columns])))
            if steps[-1] >= fewest:
                estimates.append(RunEstimate(tuple(of.of(values) for values in columns)))
    return SideEstimate(tuple(estimates), min(steps, default=0), exp(sum(logs) / len(logs)) if logs else None)


def candidate(
    change: Change,
    a: Sequence[RunSeries],
    b: Sequence[RunSeries],
    column_a: Column,
    column_b: Column,
    *,
    fewest: int = MIN_STEPS,
    of: Estimator = StepsMedian,
) -> Candidate:
    """Fill in both sides' values of a column."""
    side_a, side_b = estimate(a, column_a, fewest=fewest, of=of), estimate(b, column_b, fewest=fewest, of=of)
    change = replace(change, a=side_a.center, b=side_b.center, steps_a=side_a.steps, steps_b=side_b.steps)
    if side_a.runs and side_b.runs:
        return Candidate(change, contrast(side_a.runs, side_b.runs))
    if side_a.center is None or side_b.center is None:
        return Candidate(replace(change, why=f"not in {'A' if side_a.center is None else 'B'}"), None)
    name, steps = ("A", side_a.steps) if not side_a.runs else ("B", side_b.steps)
    return Candidate(replace(change, why=f"only {count(steps, 'step')} in {name}; {MIN_STEPS} are needed"), None)


def exclude_short(one: Candidate, limit_ns: float) -> Candidate:
    """Exclude a row from the test if it is shorter than the clock's limit on both sides."""
    change = one.change
    if one.contrast is None or change.a is None or change.b is None or max(change.a, change.b) >= limit_ns:
        return one
    return Candidate(replace(change, why=f"shorter than the clock can measure ({format_ns(limit_ns)})"), None)


def give_verdicts(family: Sequence[Candidate], limits: Limits, *, has_limit: bool = True) -> tuple[Change, ...]:
    """Give each change its verdict; Holm's correction bounds false alarms over the family.

    ``slower`` and ``faster`` are proven to differ, ``same`` is proven to lie within the margin, anything else is
    ``inconclusive``. With ``has_limit=False`` the limit does not apply.
    """
    contrasts = {id(one): one.contrast for one in family if one.contrast is not None}
    two_sided = [2 * min(seen.p_above(0.0), seen.p_below(0.0), 0.5) for seen in contrasts.values()]
    p_of = dict(zip(contrasts, holm(two_sided), strict=True))
    p_over: dict[int, float] = {}
    if limits.limit is not None and has_limit:
        over = [seen.p_above(log1p(limits.limit)) for seen in contrasts.values()]
        p_over = dict(zip(contrasts, holm(over), strict=True))
    limit = limits.limit if has_limit else None
    return tuple(
        _with_verdict(one, limits.margin, limit, p_of.get(id(one), 1.0), p_over.get(id(one), 1.0)) for one in family
    )


def _with_verdict(one: Candidate, margin: float, limit: float | None, p: float, p_over: float) -> Change:
    if one.contrast is None:
        return replace(one.change, over=None if limit is None else "unknown")
    low, high = one.contrast.interval()
    verdict, why = _verdict(one, low, high, margin, p)
    over: Over | None = None
    if limit is not None and not one.comparable:
        over = "unknown"
    elif limit is not None:
        over = "yes" if p_over < ALPHA else "no" if high <= log(1 + limit) else "unknown"
    sign = -1 if one.inverse else 1
    ends = sorted((sign * low, sign * high))
    ratio = exp(sign * one.contrast.log_ratio)
    return replace(
        one.change, ratio=ratio, low=_exp(ends[0]), high=_exp(ends[1]), p=p, verdict=verdict, why=why, over=over
    )


def _verdict(one: Candidate, low: float, high: float, margin: float, p: float) -> tuple[Verdict, str]:
    """Return the verdict, and its reason where it needs one."""
    assert one.contrast is not None
    why = one.change.why
    if -log1p(margin) <= low and high <= log1p(margin):
        return "same", why
    if p < ALPHA:
        more = one.contrast.log_ratio > 0
        if one.change.unit == "bytes":
            return "more" if more else "less", why
        return "slower" if more else "faster", why
    if low <= 0 <= high:
        return "inconclusive", why or f"the interval is wider than ±{100 * margin:g} %"
    return "inconclusive", why or "not proven among all rows, or not beyond the margin"


def _exp(value: float) -> float | None:
    """Return None for an infinite end."""
    return exp(value) if abs(value) < 500 else None
