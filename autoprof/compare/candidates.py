"""From columns of steps to verdicts: differences that exceed the variation between steps and between runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log1p

import numpy as np

from .._core.units import count
from .._stats.intervals import LEVEL, MIN_STEPS, StepsMean, StepsMedian, Values, holm
from .contrast import Contrast, RunEstimate, contrast
from .data import Change, Verdict
from .series import RankSeries, RunSeries

Column = Callable[[RankSeries], Values | None]
"""Return one column of a rank, None where the rank does not have it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change before its test. ``contrast`` is None where nothing can be tested, and ``change.why`` says why."""

    change: Change
    contrast: Contrast | None
    is_inverse: bool = False
    """Whether the inverse of the value shown is tested: the time of a sample for samples per second."""


def estimate(
    runs: Sequence[RunSeries], column: Column, of: type[StepsMedian] | type[StepsMean] = StepsMedian
) -> tuple[list[RunEstimate], int, float | None]:
    """Return the estimates of runs with enough steps, the fewest steps of a run, and the center over all runs."""
    center = np.median if of is StepsMedian else np.mean
    estimates: list[RunEstimate] = []
    steps: list[int] = []
    logs: list[float] = []
    for run in runs:
        columns = [values for values in map(column, run.ranks) if values is not None and len(values)]
        if columns:
            steps.append(min(map(len, columns)))
            logs.append(float(np.mean([np.log(np.maximum(center(values), 1e-9)) for values in columns])))
            if steps[-1] >= MIN_STEPS:
                estimates.append(RunEstimate(tuple(of.of(values) for values in columns)))
    return estimates, min(steps, default=0), exp(sum(logs) / len(logs)) if logs else None


def make_candidate(
    change: Change,
    a: Sequence[RunSeries],
    b: Sequence[RunSeries],
    columns: tuple[Column, Column],
    of: type[StepsMedian] | type[StepsMean] = StepsMedian,
) -> Candidate:
    """Fill in both sides' values of a column."""
    (runs_a, steps_a, center_a), (runs_b, steps_b, center_b) = estimate(a, columns[0], of), estimate(b, columns[1], of)
    change = replace(change, a=center_a, b=center_b, steps_a=steps_a, steps_b=steps_b)
    if runs_a and runs_b:
        return Candidate(change, contrast(runs_a, runs_b))
    if center_a is None or center_b is None:
        return Candidate(replace(change, why=f"not in {'A' if center_a is None else 'B'}"), None)
    name, steps = ("A", steps_a) if not runs_a else ("B", steps_b)
    return Candidate(replace(change, why=f"only {count(steps, 'step')} in {name}; {MIN_STEPS} are needed"), None)


def give_verdicts(family: Sequence[Candidate], margin: float, limit: float | None = None) -> tuple[Change, ...]:
    """Give each change its verdict; Holm's correction bounds false alarms over the family.

    ``slower`` and ``faster`` are proven to differ, ``same`` is proven to lie within the margin, anything else is
    ``inconclusive``.
    """
    tested = [(at, one.contrast) for at, one in enumerate(family) if one.contrast is not None]
    p_values = holm([2 * min(seen.p_above(0.0), seen.p_below(0.0), 0.5) for _, seen in tested])
    p_over = holm([seen.p_above(log1p(limit)) for _, seen in tested]) if limit is not None else [1.0] * len(tested)
    changes = [one.change for one in family]
    for (at, seen), p, over in zip(tested, p_values, p_over, strict=True):
        changes[at] = _with_verdict(family[at], seen, margin, p, is_over=over < 1 - LEVEL)
    return tuple(changes)


def _with_verdict(one: Candidate, seen: Contrast, margin: float, p: float, *, is_over: bool) -> Change:
    low, high = seen.interval()
    verdict: Verdict = "inconclusive"
    why = one.change.why
    if -log1p(margin) <= low and high <= log1p(margin):
        verdict = "same"
    elif p < 1 - LEVEL:
        is_more = seen.log_ratio > 0
        words: tuple[Verdict, Verdict] = ("more", "less") if one.change.unit == "bytes" else ("slower", "faster")
        verdict = words[0] if is_more else words[1]
    elif not why:
        is_wide = low <= 0 <= high
        why = f"the interval is wider than ±{100 * margin:g} %" if is_wide else "not proven among all rows"
    sign = -1 if one.is_inverse else 1
    ends = sorted((sign * low, sign * high))
    return replace(
        one.change,
        ratio=exp(sign * seen.log_ratio),
        low=_exp(ends[0]),
        high=_exp(ends[1]),
        p=p,
        verdict=verdict,
        why=why,
        over=is_over,
    )


def _exp(value: float) -> float | None:
    """Return None for an infinite end."""
    return exp(value) if abs(value) < 500 else None
