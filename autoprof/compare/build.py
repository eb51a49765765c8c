"""``compare_runs``: from folders of runs to a ``Comparison``."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from math import isclose
from pathlib import Path

import numpy as np

from .._core.units import format_percent
from ..errors import ConfigError, OutputError
from ..frame import Phase
from ..summary import ClockName
from .candidates import Candidate, give_verdicts, make_candidate, side_center, side_values
from .context import differences, make_notes
from .contrast import MIN_STEPS
from .data import Change, Comparison, UnpairedRow
from .series import HOST, SAMPLE_TIME, SAMPLES, STEP, WALL, Key, RunSeries, read_series

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def find_runs(paths: Paths) -> tuple[Path, ...]:
    """Return the folders of runs that paths or patterns name, in order.

    Raises ``OutputError`` for a pattern that matches no run, a run named twice, and a folder that only contains runs.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: list[Path] = []
    for one in [os.fspath(path) for path in given]:
        matches = [Path(one)]
        if has_magic(one) and not os.path.lexists(one):
            matches = [Path(match) for match in sorted(glob(one)) if (Path(match) / "run.json").is_file()]
            if not matches:
                raise OutputError(f"{one}: matches no run; allowed: folders with a run.json")
        for match in matches:
            inside = [] if (match / "run.json").is_file() else sorted(match.glob("*/run.json"))
            if inside:
                raise OutputError(f"{match}: contains {len(inside)} runs; name one of them, or all: {match}/*")
            found.append(match)
    twice = {path for path in found if [other.resolve() for other in found].count(path.resolve()) > 1}
    if twice:
        raise OutputError(f"{min(twice)}: is given twice on one side; allowed: each run once, as one observation")
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
    rank: int | None = None,
) -> Comparison:
    """Compare the run or runs ``b`` with ``a``: slower, faster, the same, or inconclusive.

    Changes within the fraction ``margin`` are the same; ``over_limit`` returns slow-downs beyond ``fail_over``. Rows
    below ``min_share`` of the step on both sides are excluded; ``rank`` selects one rank. Raises ``OutputError`` for a
    run that cannot be read, ``ConfigError`` for an option out of range.
    """
    _check_fractions(margin=margin, fail_over=fail_over, min_share=min_share)
    ranks = None if rank is None else (rank,)
    side_a, side_b = ([read_series(path, ranks) for path in find_runs(paths)] for paths in (a, b))
    clocks = {run.note.clock for run in (*side_a, *side_b) if run.note.steps}
    clock: ClockName | None = None if len(clocks) > 1 else next(iter(clocks), "host")
    samples = _samples(side_a), _samples(side_b)
    same_work = None in samples or isclose(samples[0] or 0, samples[1] or 0, rel_tol=1e-6)
    step_limit = fail_over if same_work else None
    whole = give_verdicts(_whole_step(side_a, side_b, clock), margin, step_limit)
    rate = give_verdicts(_throughput(side_a, side_b), margin, fail_over)
    wall = give_verdicts(_wall_time(side_a, side_b), margin)
    sides = _Sides(side_a, side_b, whole[0].a, whole[0].b)
    keys_a, keys_b = (_keys(side, "row") if clock else [] for side in (side_a, side_b))
    rows = [sides.row(key) for key in keys_a if key in keys_b]
    large = [row for row in rows if max(row.change.share_a or 0, row.change.share_b or 0) >= min_share]
    parts = sides.phases() if clock else []
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
        added=_unpaired(side_b, keys_b, keys_a, sides.step_b),
        removed=_unpaired(side_a, keys_a, keys_b, sides.step_a),
        small=len(rows) - len(large),
        differences=differences([run.info for run in side_a], [run.info for run in side_b]),
        notes=tuple(make_notes(notes_a, notes_b, clock, margin, samples, same_work=same_work)),
    )


def _whole_step(a: Sequence[RunSeries], b: Sequence[RunSeries], clock: ClockName | None) -> list[Candidate]:
    """Return the lines of the whole step: its median, its mean, its host time."""
    found = []
    blank = Change("step", None, "ns", None, None)
    if clock is not None:
        found.append(make_candidate(blank, a, b, STEP))
        found.append(make_candidate(replace(blank, name="mean step"), a, b, STEP, is_mean=True))
    if clock != "host":
        found.append(make_candidate(replace(blank, name="step (host time)"), a, b, HOST))
    return found


def _throughput(a: Sequence[RunSeries], b: Sequence[RunSeries]) -> list[Candidate]:
    """Return the line of the throughput, tested by the time of a sample."""
    if any(SAMPLES not in rank.columns for run in (*a, *b) for rank in run.ranks):
        return []
    one = make_candidate(Change("throughput", None, "samples/s", None, None), a, b, SAMPLE_TIME)
    rate_a, rate_b = (None if ns is None else 1e9 / ns for ns in (one.change.a, one.change.b))
    return [replace(one, change=replace(one.change, a=rate_a, b=rate_b), is_inverse=True)]


def _wall_time(a: Sequence[RunSeries], b: Sequence[RunSeries]) -> list[Candidate]:
    """Return the line of the time from step to step, validation and saving included, where it is 2 % longer."""

    def excludes(run: RunSeries) -> bool:
        columns = [(rank.columns[WALL], rank.columns[HOST]) for rank in run.ranks if WALL in rank.columns]
        return run.has_excluded and any(
            np.count_nonzero(~np.isnan(wall)) >= MIN_STEPS and np.nanmean(wall) > 1.02 * host.mean()
            for wall, host in columns
        )

    blank = Change("wall time", None, "ns", None, None)
    return [make_candidate(blank, a, b, WALL, is_mean=True)] if any(map(excludes, (*a, *b))) else []


def _memory(a: Sequence[RunSeries], b: Sequence[RunSeries]) -> list[Candidate]:
    """Return the readings of memory that all ranks of both sides have."""
    keys = set.intersection(*(set(rank.columns) for run in (*a, *b) for rank in run.ranks))
    names = sorted(key.name for key in keys if key.kind == "memory")
    return [make_candidate(Change(name, None, "bytes", None, None), a, b, Key("memory", name)) for name in names]


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides, with the medians of their steps, of which rows and phases are shares."""

    a: Sequence[RunSeries]
    b: Sequence[RunSeries]
    step_a: float | None
    step_b: float | None

    def phases(self) -> list[Candidate]:
        """Compare the self time of each phase."""
        present = {key.phase for key in _keys((*self.a, *self.b), "phase")}
        return [self._by_frequency(Key("phase", "", phase)) for phase in Phase if phase in present]

    def row(self, key: Key) -> Candidate:
        """Compare a row."""
        if any(key in rank.fqns for run in (*self.a, *self.b) for rank in run.ranks):
            # A module that is missing from a step may have been dropped for the budget, which is not zero.
            one = self._compare(key)
        else:
            one = self._by_frequency(key)
        calls_a, calls_b = _calls_per_step(self.a, key), _calls_per_step(self.b, key)
        if not isclose(calls_a, calls_b, rel_tol=0.01) and not one.change.why:
            one = replace(one, change=replace(one.change, why=f"{calls_b:.4g} calls a step, {calls_a:.4g} in A"))
        return one

    def _by_frequency(self, key: Key) -> Candidate:
        """Compare medians of the steps that have the key, or means of all steps if one side has it less often."""
        often_a, often_b = _frequency(self.a, key), _frequency(self.b, key)
        # The difference of shares of steps from which on a key is in fewer steps of one side.
        if often_a is None or often_b is None or abs(often_a - often_b) <= 0.01:
            return self._compare(key)
        one = self._compare(key, is_mean=True)
        why = f"mean over all steps: it is in {format_percent(often_a)} of A's, {format_percent(often_b)} of B's"
        return replace(one, change=replace(one.change, why=one.change.why or why))

    def _compare(self, key: Key, *, is_mean: bool = False) -> Candidate:
        one = make_candidate(Change(key.name, key.phase, "ns", None, None), self.a, self.b, key, is_mean=is_mean)
        a, b = one.change.a, one.change.b
        share_a = a / self.step_a if a is not None and self.step_a else None
        share_b = b / self.step_b if b is not None and self.step_b else None
        return replace(one, change=replace(one.change, share_a=share_a, share_b=share_b))


def _keys(runs: Sequence[RunSeries], kind: str) -> list[Key]:
    """Return the columns of a kind in all runs of one side."""
    keys = (key for run in runs for rank in run.ranks for key in rank.columns)
    return list(dict.fromkeys(key for key in keys if key.kind == kind))


def _unpaired(
    runs: Sequence[RunSeries], keys: Iterable[Key], others: Collection[Key], step_ns: float | None
) -> tuple[UnpairedRow, ...]:
    """Return the rows that the other side has not."""
    found = []
    for key in keys:
        ns = side_center(side_values(runs, key))
        if key not in others and key.phase is not None and ns is not None:
            fqns = {fqn for run in runs for rank in run.ranks for fqn in rank.fqns.get(key, ())}
            found.append(UnpairedRow(key.name, key.phase, tuple(sorted(fqns)), ns, ns / step_ns if step_ns else None))
    return tuple(sorted(found, key=lambda row: -row.ns))


def _calls_per_step(runs: Sequence[RunSeries], key: Key) -> float:
    return float(np.median([rank.calls[key] for run in runs for rank in run.ranks if key in rank.calls]))


def _frequency(runs: Sequence[RunSeries], key: Key) -> float | None:
    """Return the share of steps that have the key."""
    columns = [rank.columns[key] for run in runs for rank in run.ranks if key in rank.columns]
    return float(np.mean([np.mean(~np.isnan(column)) for column in columns])) if columns else None


def _samples(runs: Sequence[RunSeries]) -> float | None:
    """Return the samples of a step, None where a rank has logged none."""
    columns = [rank.columns.get(SAMPLES) for run in runs for rank in run.ranks]
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
