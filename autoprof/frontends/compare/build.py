"""``compare_runs``: from folders of runs to a ``Comparison``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from glob import glob, has_magic
from math import isclose
from pathlib import Path

import numpy as np

from ...base.frame import Phase
from ...base.summary import ClockName
from ...base.units import format_percent
from ...errors import ConfigError, OutputError
from .candidates import Candidate, give_verdicts, make_candidate
from .context import differences, make_notes
from .contrast import MIN_STEPS
from .data import Change, Comparison
from .series import HOST, SAMPLE_TIME, SAMPLES, STEP, WALL, Key, RankSeries, RunSeries, read_series

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_Side = Sequence[RunSeries]


def find_runs(paths: Paths) -> tuple[Path, ...]:
    """Return the folders of runs that paths or patterns name, in order.

    Raises ``OutputError`` for a pattern that matches no run, a run named twice, and a folder that only contains runs.
    """
    found: list[Path] = []
    for one in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        text = os.fspath(one)
        matches = [Path(text)]
        if has_magic(text) and not os.path.lexists(text):
            matches = [Path(match) for match in sorted(glob(text)) if (Path(match) / "run.json").is_file()]
            if not matches:
                raise OutputError(f"{text}: matches no run; allowed: folders with a run.json")
        for match in matches:
            inside = [] if (match / "run.json").is_file() else sorted(match.glob("*/run.json"))
            if inside:
                raise OutputError(f"{match}: contains {len(inside)} runs; name one of them, or all: {match}/*")
            if match.resolve() in [other.resolve() for other in found]:
                raise OutputError(f"{match}: is given twice on one side; allowed: each run once, as one observation")
            found.append(match)
    if not found:
        raise OutputError("compare: a side has no run; allowed: one or more folders of runs")
    return tuple(found)


def compare_runs(
    a: Paths,
    b: Paths,
    *,
    margin: float = 0.02,
    fail_over: float | None = None,
    min_share: float = 0.01,
) -> Comparison:
    """Compare the run or runs ``b`` with ``a``: slower, faster, the same, or inconclusive.

    Changes within the fraction ``margin`` are the same; ``over_limit`` returns slow-downs beyond ``fail_over``. Rows
    below ``min_share`` of the step on both sides are excluded. Raises ``OutputError`` for a run that cannot be read,
    ``ConfigError`` for an option out of range.
    """
    _check_fractions(margin=margin, fail_over=fail_over, min_share=min_share)
    side_a, side_b = ([read_series(path) for path in find_runs(paths)] for paths in (a, b))
    runs = (*side_a, *side_b)
    clocks = {run.note.clock for run in runs if run.note.steps}
    clock: ClockName | None = None if len(clocks) > 1 else next(iter(clocks), "host")
    samples = _samples(side_a), _samples(side_b)
    same_work = None in samples or isclose(samples[0] or 0, samples[1] or 0, rel_tol=1e-6)
    step_limit = fail_over if same_work else None
    whole = give_verdicts(_whole_step(side_a, side_b, clock), margin, step_limit)
    rate = give_verdicts(_throughput(side_a, side_b), margin, fail_over)
    wall = give_verdicts(_wall_time(side_a, side_b), margin)
    columns = dict.fromkeys(key for run in runs for one in run.ranks for key in one.columns) if clock else {}
    compare = partial(_compare_key, side_a, side_b, (whole[0].a, whole[0].b))
    parts = [compare(Key("phase", "", phase)) for phase in Phase if Key("phase", "", phase) in columns]
    rows = [compare(key) for key in columns if key.kind == "row"]
    large = [row for row in rows if max(row.change.share_a or 0, row.change.share_b or 0) >= min_share]
    changes = give_verdicts([*parts, *large], margin, step_limit)
    notes_a, notes_b = tuple(run.note for run in side_a), tuple(run.note for run in side_b)
    return Comparison(
        a=notes_a,
        b=notes_b,
        clock=clock,
        margin=margin,
        limit=fail_over,
        whole=(*whole, *rate, *wall),
        phases=changes[: len(parts)],
        rows=tuple(sorted(changes[len(parts) :], key=lambda row: -abs((row.b or 0) - (row.a or 0)))),
        memory=give_verdicts(_memory(side_a, side_b), margin),
        small=len(rows) - len(large),
        differences=differences([run.info for run in side_a], [run.info for run in side_b]),
        notes=tuple(make_notes(notes_a, notes_b, clock, margin, samples, same_work=same_work)),
    )


def _whole_step(a: _Side, b: _Side, clock: ClockName | None) -> list[Candidate]:
    """Return the lines of the whole step: its median, its mean, its host time."""
    found = []
    if clock is not None:
        found = [make_candidate(Change("step", None, "ns"), a, b, STEP)]
        found.append(make_candidate(Change("mean step", None, "ns"), a, b, STEP, is_mean=True))
    if clock != "host":
        found.append(make_candidate(Change("step (host time)", None, "ns"), a, b, HOST))
    return found


def _throughput(a: _Side, b: _Side) -> list[Candidate]:
    """Return the line of the throughput, tested by the time of a sample."""
    if any(SAMPLES not in rank.columns for run in (*a, *b) for rank in run.ranks):
        return []
    one = make_candidate(Change("throughput", None, "samples/s"), a, b, SAMPLE_TIME)
    rate_a, rate_b = (None if ns is None else 1e9 / ns for ns in (one.change.a, one.change.b))
    return [replace(one, change=replace(one.change, a=rate_a, b=rate_b), is_inverse=True)]


def _wall_time(a: _Side, b: _Side) -> list[Candidate]:
    """Return the line of the time from step to step, validation and saving included, where it is 2 % longer."""
    is_longer = any(
        np.count_nonzero(~np.isnan(wall := rank.columns[WALL])) >= MIN_STEPS
        and np.nanmean(wall) > 1.02 * rank.columns[HOST].mean()
        for run in (*a, *b)
        for rank in run.ranks
        if run.has_excluded and WALL in rank.columns
    )
    return [make_candidate(Change("wall time", None, "ns"), a, b, WALL, is_mean=True)] if is_longer else []


def _memory(a: _Side, b: _Side) -> list[Candidate]:
    """Return the readings of memory that all ranks of both sides have."""
    keys = set.intersection(*(set(rank.columns) for run in (*a, *b) for rank in run.ranks))
    names = sorted(key.name for key in keys if key.kind == "memory")
    return [make_candidate(Change(name, None, "bytes"), a, b, Key("memory", name)) for name in names]


def _compare_key(a: _Side, b: _Side, steps_ns: tuple[float | None, float | None], key: Key) -> Candidate:
    """Compare the medians of a phase or a row, or means over all steps if one side has it in fewer steps."""
    often_a, often_b = _mean_over_ranks(a, key, _frequency), _mean_over_ranks(b, key, _frequency)
    calls_a, calls_b = (_mean_over_ranks(side, key, lambda rank, key: rank.calls.get(key, 1.0)) for side in (a, b))
    # A module that is missing from a step may have been dropped for the budget, which is not zero.
    is_module = any(key in rank.modules for run in (*a, *b) for rank in run.ranks)
    is_mean = not is_module and min(often_a, often_b) > 0 and abs(often_a - often_b) > 0.01
    why = ""
    if is_mean:
        why = f"mean over all steps: it is in {format_percent(often_a)} of A's, {format_percent(often_b)} of B's"
    elif not isclose(calls_a, calls_b, rel_tol=0.01):
        why = f"{calls_b:.4g} calls a step, {calls_a:.4g} in A"
    one = make_candidate(Change(key.name, key.phase, "ns", why=why), a, b, key, is_mean=is_mean)
    values = zip((one.change.a, one.change.b), steps_ns, strict=True)
    share_a, share_b = (value / step_ns if value is not None and step_ns else None for value, step_ns in values)
    return replace(one, change=replace(one.change, share_a=share_a, share_b=share_b))


def _mean_over_ranks(side: _Side, key: Key, value: Callable[[RankSeries, Key], float]) -> float:
    """Return the mean of a value over the ranks that have the key, 0 without one."""
    found = [value(rank, key) for run in side for rank in run.ranks if key in rank.columns]
    return float(np.mean(found)) if found else 0.0


def _frequency(rank: RankSeries, key: Key) -> float:
    """Return the share of steps that have the key."""
    return float(np.mean(~np.isnan(rank.columns[key])))


def _samples(side: _Side) -> float | None:
    """Return the samples of a step, None where a rank has logged none."""
    columns = [rank.columns.get(SAMPLES) for run in side for rank in run.ranks]
    known = [float(np.nanmedian(column)) for column in columns if column is not None]
    return float(np.median(known)) if len(known) == len(columns) else None


def _check_fractions(**fractions: float | None) -> None:
    problems = [
        f"{name}: {value!r} is out of range; allowed: a fraction from 0 to below 10, such as 0.05"
        for name, value in fractions.items()
        if value is not None and not 0 <= value < 10
    ]
    if problems:
        raise ConfigError(problems)
