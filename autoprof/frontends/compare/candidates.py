"""From columns of steps to verdicts: differences that exceed the variation between steps and between runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log1p

import numpy as np

from ...base.stats.intervals import LEVEL
from ...base.units import count
from .contrast import MIN_STEPS, Estimate, Floats, center, contrast, estimate_run, holm, ratio
from .data import Change, Verdict
from .series import Key, RunSeries


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change before its test. ``contrast`` is None where nothing can be tested, and ``change.why`` says why."""

    change: Change
    contrast: Estimate | None
    is_inverse: bool = False
    """Whether the inverse of the value shown is tested: the time of a sample for samples per second."""


def side_values(runs: Sequence[RunSeries], key: Key, *, is_mean: bool = False) -> list[list[Floats]]:
    """Return a column of the ranks of each run that has it; a mean counts steps without a row or phase as zero."""
    found = []
    for run in runs:
        columns = [rank.columns[key] for rank in run.ranks if key in rank.columns]
        counts_absent = is_mean and key.kind in ("row", "phase")
        values = [np.nan_to_num(one) if counts_absent else one[~np.isnan(one)] for one in columns]
        found.append([one for one in values if len(one)])
    return [ranks for ranks in found if ranks]


def side_center(runs: Sequence[Sequence[Floats]], *, is_mean: bool = False) -> float | None:
    """Return the geometric mean of all runs' medians or means, None without a run."""
    logs = [np.mean([np.log(center(values, is_mean=is_mean)) for values in ranks]) for ranks in runs]
    return exp(float(np.mean(logs))) if logs else None


def make_candidate(
    change: Change, a: Sequence[RunSeries], b: Sequence[RunSeries], key: Key, *, is_mean: bool = False
) -> Candidate:
    """Compare the medians, or the means, of a column."""
    sides = [side_values(runs, key, is_mean=is_mean) for runs in (a, b)]
    steps = [[min(map(len, ranks)) for ranks in side] for side in sides]
    fewest = [min(counts, default=0) for counts in steps]
    centers = [side_center(side, is_mean=is_mean) for side in sides]
    change = replace(change, a=centers[0], b=centers[1], steps_a=fewest[0], steps_b=fewest[1])
    for name, middle in zip("AB", centers, strict=True):
        if middle is None:
            return Candidate(replace(change, why=f"not in {name}"), None)
    for name, most, counts in zip("AB", map(max, steps), fewest, strict=True):
        if most < MIN_STEPS:
            return Candidate(
                replace(change, why=f"only {count(counts, 'step')} in {name}; {MIN_STEPS} are needed"), None
            )
    runs_a, runs_b = (
        [estimate_run(ranks, is_mean=is_mean) for ranks in side if min(map(len, ranks)) >= MIN_STEPS] for side in sides
    )
    return Candidate(change, contrast(runs_a, runs_b))


def give_verdicts(family: Sequence[Candidate], margin: float, limit: float | None = None) -> tuple[Change, ...]:
    """Give each change its verdict; Holm's correction bounds false alarms over the family.

    ``slower`` and ``faster`` are proven to differ, ``same`` is proven to lie within the margin, anything else is
    ``inconclusive``.
    """
    tested = [(at, one.contrast) for at, one in enumerate(family) if one.contrast is not None]
    p_values = holm([seen.p_differs() for _, seen in tested])
    p_over = holm([seen.p_above(log1p(limit)) for _, seen in tested]) if limit is not None else [1.0] * len(tested)
    changes = [one.change for one in family]
    for (at, seen), p, over in zip(tested, p_values, p_over, strict=True):
        changes[at] = _with_verdict(family[at], seen, margin, p, is_over=over < 1 - LEVEL)
    return tuple(changes)


def _with_verdict(one: Candidate, seen: Estimate, margin: float, p: float, *, is_over: bool) -> Change:
    low, high = seen.interval()
    verdict: Verdict = "inconclusive"
    why = one.change.why
    if -log1p(margin) <= low and high <= log1p(margin):
        verdict = "same"
    elif p < 1 - LEVEL:
        words: tuple[Verdict, Verdict] = ("more", "less") if one.change.unit == "bytes" else ("slower", "faster")
        verdict = words[0] if seen.log > 0 else words[1]
    elif not why:
        is_wide = low <= 0 <= high
        why = f"the interval is wider than ±{100 * margin:g} %" if is_wide else "not proven among all rows"
    shown = (-seen.log, -high, -low) if one.is_inverse else (seen.log, low, high)
    middle, begin, end = map(ratio, shown)
    return replace(one.change, ratio=middle, low=begin, high=end, p=p, verdict=verdict, why=why, over=is_over)
