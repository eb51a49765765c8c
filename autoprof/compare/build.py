"""``compare_runs``: from folders of runs to a ``Comparison``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from glob import glob, has_magic
from math import isclose
from pathlib import Path
from typing import Final

import numpy as np

from .._stats.intervals import MIN_STEPS, StepsMean
from .._units import format_percent
from ..errors import ConfigError, OutputError, nearest
from ..frame import Nanoseconds, Phase
from ..summary import ClockName
from .context import differences, make_notes
from .data import Change, Comparison, UnpairedRow
from .memory import memory_changes
from .row_pairs import ModulesByRow, RowPairs, modules_by_row, pair_rows
from .series import Floats, PairKey, RankSeries, RunSeries, over_all_steps, read_series
from .verdicts import Candidate, Column, Limits, candidate, estimate, exclude_short, give_verdicts

UNEQUAL_FREQUENCY: Final = 0.01
"""From this difference on (as a share of steps), rows that occur more often on one side are compared by their mean."""
WALL: Final = "wall time"
"""The line for the mean time from step to step, validation and saving included."""
MIN_EXCLUDED: Final = 0.02
"""Excluded time over the time of steps, from which that line is shown."""
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
    phases: Collection[str | Phase] = (),
    name: str | None = None,
    rank: int | None = None,
) -> Comparison:
    """Compare the run or runs ``b`` with ``a``: slower, faster, the same, or inconclusive.

    Changes within the fraction ``margin`` are the same; ``over_limit`` returns slow-downs beyond ``fail_over``. Rows
    below ``min_share`` of the step on both sides are excluded. ``phases`` and ``name`` (a regular expression) select
    rows; ``rank`` selects one rank. Raises ``OutputError`` for a run that cannot be read, ``ConfigError`` for an option
    out of range.
    """
    chosen, pattern = _parse_phases(phases), _parse_pattern(name)
    _check_fractions(margin=margin, fail_over=fail_over, min_share=min_share)
    ranks = None if rank is None else (rank,)
    side_a, side_b = ([read_series(path, ranks) for path in find_runs(paths)] for paths in (a, b))
    clock = _common_clock((*side_a, *side_b))
    limits = Limits(margin, fail_over)
    filtered = bool(chosen) or pattern is not None
    samples = _samples(side_a), _samples(side_b)
    same_work = None in samples or isclose(samples[0] or 0, samples[1] or 0, rel_tol=1e-6)
    whole = give_verdicts(_whole_step(side_a, side_b, clock, same_work), limits, has_limit=not filtered)
    wall = give_verdicts(_wall_time(side_a, side_b), limits, has_limit=False)
    sides = _Sides(side_a, side_b, whole[0].a, whole[0].b)
    modules_a, modules_b = modules_by_row(side_a), modules_by_row(side_b)
    pairs = pair_rows(modules_a, modules_b) if clock else RowPairs()

    def is_selected(*keys: PairKey) -> bool:
        named = pattern is None or any(pattern.search(key.name) for key in keys)
        return named and (not chosen or keys[0].phase in chosen)

    rows = [sides.row(old, new) for old, new in pairs.both if is_selected(old, new)]
    large = [row for row in rows if max(row.change.share_a or 0, row.change.share_b or 0) >= min_share]
    parts = sides.phases(chosen) if clock and pattern is None else []
    family = [replace(one, comparable=same_work) for one in (*parts, *large)]
    changes = give_verdicts(family, limits)
    notes_a, notes_b = tuple(run.note for run in side_a), tuple(run.note for run in side_b)
    return Comparison(
        a=notes_a,
        b=notes_b,
        clock=clock,
        margin=margin,
        limit=fail_over,
        whole=(*whole, *wall),
        phases=changes[: len(parts)],
        rows=tuple(sorted(changes[len(parts) :], key=lambda row: -abs((row.b or 0) - (row.a or 0)))),
        memory=memory_changes(side_a, side_b, limits),
        added=_unpaired(side_b, filter(is_selected, pairs.only_b), modules_b, sides.step_b),
        removed=_unpaired(side_a, filter(is_selected, pairs.only_a), modules_a, sides.step_a),
        regrouped=pairs.regrouped,
        small=len(rows) - len(large),
        differences=differences([run.info for run in side_a], [run.info for run in side_b]),
        notes=tuple(make_notes(notes_a, notes_b, clock, margin, samples, same_work=same_work)),
        filtered=filtered,
    )


def _common_clock(runs: Iterable[RunSeries]) -> ClockName | None:
    clocks = {run.note.clock for run in runs if run.note.steps}
    return None if len(clocks) > 1 else next(iter(clocks), "host")


def _whole_step(
    a: Sequence[RunSeries], b: Sequence[RunSeries], clock: ClockName | None, same_work: bool
) -> list[Candidate]:
    """Return the lines of the whole step: its median, its mean, its host time, the throughput."""
    found = []
    blank = Change("step", None, "ns", None, None)
    if clock is not None:
        found.append(candidate(blank, a, b, _step_ns, _step_ns))
        found.append(candidate(replace(blank, name="mean step"), a, b, _step_ns, _step_ns, of=StepsMean))
    if clock != "host":
        found.append(candidate(replace(blank, name="step (host time)"), a, b, _host_ns, _host_ns))
    found = [replace(one, comparable=same_work) for one in found]
    if all(rank.samples is not None for run in (*a, *b) for rank in run.ranks):
        rate = candidate(Change("throughput", None, "samples/s", None, None), a, b, _sample_ns, _sample_ns)
        rate_a, rate_b = (None if ns is None else 1e9 / ns for ns in (rate.change.a, rate.change.b))
        found.append(replace(rate, change=replace(rate.change, a=rate_a, b=rate_b), inverse=True))
    return found


def _wall_time(a: Sequence[RunSeries], b: Sequence[RunSeries]) -> list[Candidate]:
    """Return the line of the wall time where one side has excluded time."""
    if not any(run.has_excluded and _excludes(rank) for run in (*a, *b) for rank in run.ranks):
        return []
    return [candidate(Change(WALL, None, "ns", None, None), a, b, _wall_ns, _wall_ns, of=StepsMean)]


def _excludes(rank: RankSeries) -> bool:
    """Return whether time outside of steps is a part of the run that a comparison has to show."""
    return len(rank.wall_ns) >= MIN_STEPS and rank.wall_ns.mean() > (1 + MIN_EXCLUDED) * rank.host_ns.mean()


def _wall_ns(rank: RankSeries) -> Nanoseconds:
    return rank.wall_ns


def _step_ns(rank: RankSeries) -> Nanoseconds:
    return rank.step_ns


def _host_ns(rank: RankSeries) -> Nanoseconds:
    return rank.host_ns


def _sample_ns(rank: RankSeries) -> Floats:
    return rank.sample_ns


def _phase_ns(rank: RankSeries, phase: Phase) -> Nanoseconds | None:
    return rank.phases.get(phase)


def _phase_ns_where_present(rank: RankSeries, phase: Phase) -> Nanoseconds | None:
    column = rank.phases.get(phase)
    return None if column is None else column[column > 0]


def _row_ns(rank: RankSeries, key: PairKey) -> Nanoseconds | None:
    return rank.rows.get(key)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides, with the medians of their steps, of which rows and phases are shares."""

    a: Sequence[RunSeries]
    b: Sequence[RunSeries]
    step_a: float | None
    step_b: float | None

    @property
    def limit_ns(self) -> int:
        return max(run.limit_ns for run in (*self.a, *self.b))

    def phases(self, chosen: set[Phase]) -> list[Candidate]:
        """Compare the self time of each phase in the steps that have it."""
        present = {phase for run in (*self.a, *self.b) for rank in run.ranks for phase in rank.phases}
        found = []
        for phase in (phase for phase in Phase if phase in present and (not chosen or phase in chosen)):
            whole, part = partial(_phase_ns, phase=phase), partial(_phase_ns_where_present, phase=phase)
            one = self._by_frequency(Change("", phase, "ns", None, None), (part, part), (whole, whole))
            found.append(exclude_short(self._with_shares(one), self.limit_ns))
        return found

    def row(self, old: PairKey, new: PairKey) -> Candidate:
        """Compare a row; ``old`` and ``new`` differ where its name does."""
        blank = Change(new.name, new.phase, "ns", None, None, was=old.name if old != new else None)
        columns = partial(_row_ns, key=old), partial(_row_ns, key=new)
        if any(rank.fqns.get(key) for run in (*self.a, *self.b) for rank in run.ranks for key in (old, new)):
            # A module that is missing from a step may have been dropped for the budget, which is not zero.
            one = candidate(blank, self.a, self.b, *columns)
        else:
            wholes = partial(over_all_steps, key=old), partial(over_all_steps, key=new)
            one = self._by_frequency(blank, columns, wholes)
        calls_a, calls_b = _calls_per_step(self.a, old), _calls_per_step(self.b, new)
        one = exclude_short(self._with_shares(one), self.limit_ns * max(calls_a, calls_b))
        if not isclose(calls_a, calls_b, rel_tol=0.01) and not one.change.why:
            one = replace(one, change=replace(one.change, why=f"{calls_b:.4g} calls a step, {calls_a:.4g} in A"))
        return one

    def _by_frequency(self, blank: Change, parts: tuple[Column, Column], wholes: tuple[Column, Column]) -> Candidate:
        """Compare medians of the steps that have the row, or means of all steps if one side has it less often."""
        often_a, often_b = _frequency(self.a, parts[0]), _frequency(self.b, parts[1])
        if often_a is None or often_b is None or abs(often_a - often_b) <= UNEQUAL_FREQUENCY:
            return candidate(blank, self.a, self.b, *parts)
        one = candidate(blank, self.a, self.b, *wholes, of=StepsMean)
        why = f"mean over all steps: it is in {format_percent(often_a)} of A's, {format_percent(often_b)} of B's"
        return replace(one, change=replace(one.change, why=one.change.why or why))

    def _with_shares(self, one: Candidate) -> Candidate:
        change = one.change
        share_a = change.a / self.step_a if change.a is not None and self.step_a else None
        share_b = change.b / self.step_b if change.b is not None and self.step_b else None
        return replace(one, change=replace(change, share_a=share_a, share_b=share_b))


def _unpaired(
    runs: Sequence[RunSeries], keys: Iterable[PairKey], modules: ModulesByRow, step_ns: float | None
) -> tuple[UnpairedRow, ...]:
    found = []
    for key in keys:
        ns = estimate(runs, partial(_row_ns, key=key)).center
        if ns is not None:
            share = ns / step_ns if step_ns else None
            found.append(UnpairedRow(key.name, key.phase, tuple(sorted(modules[key])), ns, share))
    return tuple(sorted(found, key=lambda row: -row.ns))


def _calls_per_step(runs: Sequence[RunSeries], key: PairKey) -> float:
    return float(np.median([rank.calls[key] for run in runs for rank in run.ranks if key in rank.calls]))


def _frequency(runs: Sequence[RunSeries], column: Column) -> float | None:
    """Return the share of steps that have the column."""
    columns = [(column(rank), len(rank.step_ns)) for run in runs for rank in run.ranks]
    shares = [len(values) / steps for values, steps in columns if values is not None and steps]
    return sum(shares) / len(shares) if shares else None


def _samples(runs: Sequence[RunSeries]) -> float | None:
    counts = [rank.samples for run in runs for rank in run.ranks]
    known = [count for count in counts if count is not None]
    return float(np.median(known)) if len(known) == len(counts) and known else None


def _parse_phases(names: Collection[str | Phase]) -> set[Phase]:
    allowed = [str(phase) for phase in Phase]
    unknown = [str(name) for name in names if str(name) not in allowed]
    if unknown:
        raise ConfigError([f"phase: {name!r} is unknown; {nearest(name, allowed, 1)}" for name in unknown])
    return {Phase(name) for name in names}


def _parse_pattern(name: str | None) -> re.Pattern[str] | None:
    try:
        return None if name is None else re.compile(name)
    except re.error as error:
        problem = f"name: {name!r} is not a regular expression: {error}; allowed: the syntax of Python's re"
        raise ConfigError([problem]) from None


def _check_fractions(**fractions: float | None) -> None:
    problems = [
        f"{name}: {value!r} is out of range; allowed: a fraction from 0 to below 10, such as 0.05"
        for name, value in fractions.items()
        if value is not None and not 0 <= value < 10
    ]
    if problems:
        raise ConfigError(problems)
