"""Series → changes with a verdict: which differences there are, given how much steps and runs differ by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log, log1p
from typing import Final

import numpy as np
import numpy.typing as npt

from .._stats.intervals import LEVEL, MIN_STEPS, StepsMean, StepsMedian, holm
from .._units import format_ns
from .contrast import Contrast, RunEstimate, contrast
from .data import Change, Over, Verdict
from .series import RankSeries, RunSeries

ALPHA: Final = 1 - LEVEL
Column = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Pick = Callable[[RankSeries], Column | None]
Estimator = type[StepsMedian] | type[StepsMean]


@dataclass(frozen=True, slots=True)
class Scale:
    """What counts as the same, as a fraction, and beyond what a change fails (None: nothing does)."""

    margin: float
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change before it is judged. ``seen`` is None where there is nothing to judge, and ``change.why`` says why."""

    change: Change
    seen: Contrast | None
    inverse: bool = False
    """What is judged is the inverse of what is shown: the time a sample takes, for samples a second."""
    known: bool = True
    """Whether it says anything about the limit: not where the sides did different work."""


def gather(
    runs: Sequence[RunSeries],
    pick: Pick,
    *,
    fewest: int = MIN_STEPS,
    of: Estimator = StepsMedian,
) -> tuple[list[RunEstimate], int, float | None]:
    """Return what the runs say of a column, the fewest steps that one of them has of it, and its median (or mean)."""
    centre = np.median if of is StepsMedian else np.mean
    found: list[RunEstimate] = []
    least: int | None = None
    medians = []
    for run in runs:
        columns = [column for column in map(pick, run.ranks) if column is not None and len(column)]
        if not columns:
            continue
        steps = min(map(len, columns))
        least = steps if least is None else min(least, steps)
        medians.append(float(np.mean([np.log(np.maximum(centre(column), 1e-9)) for column in columns])))
        if steps >= fewest:
            found.append(RunEstimate(tuple(of.of(column) for column in columns)))
    return found, least or 0, exp(sum(medians) / len(medians)) if medians else None


def candidate(
    change: Change,
    a: Sequence[RunSeries],
    b: Sequence[RunSeries],
    pick_a: Pick,
    pick_b: Pick,
    *,
    fewest: int = MIN_STEPS,
    of: Estimator = StepsMedian,
) -> Candidate:
    """Fill in what both sides have of a column."""
    runs_a, steps_a, value_a = gather(a, pick_a, fewest=fewest, of=of)
    runs_b, steps_b, value_b = gather(b, pick_b, fewest=fewest, of=of)
    change = replace(change, a=value_a, b=value_b, steps_a=steps_a, steps_b=steps_b)
    if runs_a and runs_b:
        return Candidate(change, contrast(runs_a, runs_b))
    if value_a is None or value_b is None:
        return Candidate(replace(change, why=f"not in {'A' if value_a is None else 'B'}"), None)
    side, steps = ("A", steps_a) if not runs_a else ("B", steps_b)
    return Candidate(replace(change, why=f"only {steps} steps in {side}; {MIN_STEPS} are needed"), None)


def too_short(one: Candidate, limit_ns: float) -> Candidate:
    """Withdraw a row that is shorter on both sides than what the clock can tell."""
    change = one.change
    if one.seen is None or change.a is None or change.b is None or max(change.a, change.b) >= limit_ns:
        return one
    return Candidate(replace(change, why=f"shorter than the clock can tell ({format_ns(limit_ns)})"), None)


def judge(family: Sequence[Candidate], scale: Scale, *, counts: bool = True) -> tuple[Change, ...]:
    """Give each change its verdict. False alarms are bounded over the whole family (Holm), for verdict and limit alike.

    ``slower`` and ``faster`` are proven to differ; ``same`` is proven to lie within the margin; the rest is
    ``inconclusive``. Without ``counts`` nothing is said of the limit.
    """
    tested = [one for one in family if one.seen is not None]
    two_sided = [2 * min(one.seen.p_above(0.0), one.seen.p_below(0.0), 0.5) for one in tested if one.seen is not None]
    proofs = dict(zip(map(id, tested), holm(two_sided), strict=True))
    beyond: dict[int, float] = {}
    if scale.limit is not None and counts:
        limit = log1p(scale.limit)
        beyond = dict(zip(map(id, tested), holm([one.seen.p_above(limit) for one in tested if one.seen]), strict=True))
    return tuple(_judged(one, scale, proofs.get(id(one), 1.0), beyond.get(id(one)), counts) for one in family)


def _judged(one: Candidate, scale: Scale, p: float, beyond: float | None, counts: bool) -> Change:
    asked = scale.limit is not None and counts
    if one.seen is None:
        return replace(one.change, over="unknown" if asked else None)
    low, high = one.seen.interval()
    margin = log1p(scale.margin)
    verdict: Verdict = "inconclusive"
    why = one.change.why
    if -margin <= low and high <= margin:
        verdict = "same"
    elif p < ALPHA:
        verdict = _words(one.change, one.seen.log_ratio > 0)
    elif low <= 0 <= high:
        why = why or f"the interval is wider than ±{100 * scale.margin:g} %"
    else:
        why = why or "not proven among all rows, or not beyond the margin"
    over: Over | None = None
    if asked and beyond is not None and scale.limit is not None:
        over = "unknown" if not one.known else "yes" if beyond < ALPHA else _below(high, scale.limit)
    sign = -1 if one.inverse else 1
    ends = sorted((sign * low, sign * high))
    return replace(
        one.change,
        ratio=exp(sign * one.seen.log_ratio),
        low=_exp(ends[0]),
        high=_exp(ends[1]),
        p=p,
        verdict=verdict,
        why=why,
        over=over,
    )


def _words(change: Change, more: bool) -> Verdict:
    if change.unit == "bytes":
        return "more" if more else "less"
    return "slower" if more else "faster"


def _below(high: float, limit: float) -> Over:
    return "no" if high <= log(1 + limit) else "unknown"


def _exp(value: float) -> float | None:
    """Return None for an end that no step bounds."""
    return exp(value) if abs(value) < 500 else None
