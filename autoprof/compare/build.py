"""``compare_runs``: from folders of runs to a ``Comparison``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from glob import glob, has_magic
from math import isclose
from pathlib import Path
from typing import Final

import numpy as np

from .._stats.intervals import StepsMean
from .._units import format_percent as _percent
from ..errors import ConfigError, OutputError, nearest
from ..frame import Nanoseconds, Phase
from ..summary import Clock
from .data import Change, Comparison, Lone
from .differences import differences
from .judge import Candidate, Pick, Scale, candidate, gather, judge, too_short
from .memory import memory_changes
from .notes import notes_of
from .pairs import Pairs, Side, pair
from .series import Floats, Key, RankSeries, RunSeries, over_all_steps, read_series

UNLIKE: Final = 0.01
"""How much more often a row may occur on one side, as a share of steps, before its mean over all steps is compared."""
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def find_runs(paths: Paths) -> tuple[Path, ...]:
    """Return the folders of runs that paths or patterns name, in order, each once.

    Raises ``OutputError`` for a pattern that matches no run, a run named twice, and a folder that only holds runs.
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
                raise OutputError(f"{match}: holds {len(inside)} runs; name one of them, or all: {match}/*")
            found.append(match)
    twice = {path for path in found if [other.resolve() for other in found].count(path.resolve()) > 1}
    if twice:
        raise OutputError(f"{min(twice)}: is there twice on one side; a run counts once, or it would agree with itself")
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
    """Compare the run or runs ``b`` with ``a``: what is slower, faster, the same, or cannot be told.

    ``margin`` is the fraction within which a change counts as the same; ``fail_over`` the one beyond which
    ``over_limit`` reports a slow-down. Rows below ``min_share`` of the step on both sides are left out. ``phases`` and
    ``name`` (a regular expression) choose rows; ``rank`` one rank instead of all. Raises ``OutputError`` for a run that
    cannot be read, ``ConfigError`` for an option that cannot be.
    """
    chosen = _phases(phases)
    pattern = _pattern(name)
    _check(margin=margin, fail_over=fail_over, min_share=min_share)
    ranks = None if rank is None else (rank,)
    side_a, side_b = ([read_series(path, ranks) for path in find_runs(paths)] for paths in (a, b))
    clock = _clock((*side_a, *side_b))
    scale = Scale(margin, fail_over)
    filtered = bool(chosen) or pattern is not None
    work = _samples(side_a), _samples(side_b)
    same_work = None in work or isclose(work[0] or 0, work[1] or 0, rel_tol=1e-6)
    whole = judge(_whole(side_a, side_b, clock, same_work), scale, counts=not filtered)
    pairs = pair(Side(side_a), Side(side_b)) if clock else Pairs((), (), (), {})
    step_a, step_b = whole[0].a, whole[0].b

    def wanted(*keys: Key) -> bool:
        named = pattern is None or any(pattern.search(key.name) for key in keys)
        return named and (not chosen or keys[0].phase in chosen)

    pool = [_row(old, new, side_a, side_b, step_a, step_b) for old, new in pairs.both if wanted(old, new)]
    large = [one for one in pool if max(one.change.share_a or 0, one.change.share_b or 0) >= min_share]
    parts = _phase_rows(side_a, side_b, step_a, step_b, chosen) if clock and pattern is None else []
    family = [*parts, *large]
    judged = judge([replace(one, known=same_work) for one in family], scale)
    rows = sorted(judged[len(parts) :], key=lambda one: -abs((one.b or 0) - (one.a or 0)))
    return Comparison(
        a=tuple(run.note for run in side_a),
        b=tuple(run.note for run in side_b),
        clock=clock,
        margin=margin,
        limit=fail_over,
        whole=whole,
        phases=judged[: len(parts)],
        rows=tuple(rows),
        memory=memory_changes(side_a, side_b, scale),
        added=_lone(side_b, [key for key in pairs.only_b if wanted(key)], step_b),
        removed=_lone(side_a, [key for key in pairs.only_a if wanted(key)], step_a),
        regrouped=pairs.regrouped,
        small=len(pool) - len(large),
        differences=differences([run.info for run in side_a], [run.info for run in side_b]),
        notes=notes_of(side_a, side_b, clock, margin, None if same_work else work),
        filtered=filtered,
    )


def _clock(runs: Iterable[RunSeries]) -> Clock | None:
    clocks = {run.note.clock for run in runs if run.note.steps}
    return None if len(clocks) > 1 else next(iter(clocks), "host")


def _whole(a: Sequence[RunSeries], b: Sequence[RunSeries], clock: Clock | None, same_work: bool) -> list[Candidate]:
    found = []
    blank = Change("step", None, "ns", None, None)
    if clock is not None:
        found.append(replace(candidate(blank, a, b, _step, _step), known=same_work))
        mean = replace(blank, name="mean step")
        found.append(replace(candidate(mean, a, b, _step, _step, of=StepsMean), known=same_work))
    if clock != "host":
        by_host = replace(blank, name="step (host's clock)")
        found.append(replace(candidate(by_host, a, b, _host, _host), known=same_work))
    if all(rank.samples is not None for run in (*a, *b) for rank in run.ranks):
        rate = candidate(Change("throughput", None, "samples/s", None, None), a, b, _sample, _sample)
        value_a, value_b = (None if ns is None else 1e9 / ns for ns in (rate.change.a, rate.change.b))
        found.append(replace(rate, change=replace(rate.change, a=value_a, b=value_b), inverse=True))
    return found


def _step(rank: RankSeries) -> Nanoseconds:
    return rank.step_ns


def _host(rank: RankSeries) -> Nanoseconds:
    return rank.host_ns


def _sample(rank: RankSeries) -> Floats:
    return rank.sample_ns


def _phase_rows(
    a: Sequence[RunSeries], b: Sequence[RunSeries], step_a: float | None, step_b: float | None, chosen: set[Phase]
) -> list[Candidate]:
    """Each phase's own time: what it took in the steps in which it took anything."""
    seen = {phase for run in (*a, *b) for rank in run.ranks for phase in rank.phases}
    found = []
    for phase in (phase for phase in Phase if phase in seen and (not chosen or phase in chosen)):
        whole, part = partial(_phase, phase=phase), partial(_phase_when_there, phase=phase)
        one = _by_frequency(Change("", phase, "ns", None, None), a, b, (part, part), (whole, whole))
        found.append(too_short(_shared(one, step_a, step_b), _limit(a, b)))
    return found


def _phase(rank: RankSeries, phase: Phase) -> Nanoseconds | None:
    return rank.phases.get(phase)


def _phase_when_there(rank: RankSeries, phase: Phase) -> Nanoseconds | None:
    column = rank.phases.get(phase)
    return None if column is None else column[column > 0]


def _row(
    old: Key, new: Key, a: Sequence[RunSeries], b: Sequence[RunSeries], step_a: float | None, step_b: float | None
) -> Candidate:
    blank = Change(new.name, new.phase, "ns", None, None, was=old.name if old != new else None)
    picks = partial(_column, key=old), partial(_column, key=new)
    if any(key in rank.fqns and rank.fqns[key] for run in (*a, *b) for rank in run.ranks for key in (old, new)):
        # A module that is not in a step may have been left out by the governor: that is not zero.
        one = candidate(blank, a, b, *picks)
    else:
        one = _by_frequency(blank, a, b, picks, (partial(over_all_steps, key=old), partial(over_all_steps, key=new)))
    calls_a, calls_b = _calls(a, old), _calls(b, new)
    one = too_short(_shared(one, step_a, step_b), _limit(a, b) * max(calls_a, calls_b))
    if not isclose(calls_a, calls_b, rel_tol=0.01) and not one.change.why:
        one = replace(one, change=replace(one.change, why=f"{calls_b:.4g} calls a step, {calls_a:.4g} in A"))
    return one


def _column(rank: RankSeries, key: Key) -> Nanoseconds | None:
    return rank.rows.get(key)


def _by_frequency(
    blank: Change, a: Sequence[RunSeries], b: Sequence[RunSeries], parts: tuple[Pick, Pick], wholes: tuple[Pick, Pick]
) -> Candidate:
    """Compare medians of the steps that have it; means of all where it is rarer on one side: it costs less then."""
    often_a, often_b = _often(a, parts[0]), _often(b, parts[1])
    if often_a is None or often_b is None or abs(often_a - often_b) <= UNLIKE:
        return candidate(blank, a, b, *parts)
    one = candidate(blank, a, b, *wholes, of=StepsMean)
    why = one.change.why or f"mean over all steps: it is in {_percent(often_a)} of A's, {_percent(often_b)} of B's"
    return replace(one, change=replace(one.change, why=why))


def _shared(one: Candidate, step_a: float | None, step_b: float | None) -> Candidate:
    change = one.change
    share_a = change.a / step_a if change.a is not None and step_a else None
    share_b = change.b / step_b if change.b is not None and step_b else None
    return replace(one, change=replace(change, share_a=share_a, share_b=share_b))


def _lone(runs: Sequence[RunSeries], keys: Iterable[Key], step_ns: float | None) -> tuple[Lone, ...]:
    fqns = Side(runs).fqns
    found = []
    for key in keys:
        _, _, ns = gather(runs, lambda rank, key=key: rank.rows.get(key))  # type: ignore[misc]
        if ns is not None:
            found.append(Lone(key.name, key.phase, tuple(sorted(fqns[key])), ns, ns / step_ns if step_ns else None))
    return tuple(sorted(found, key=lambda one: -one.ns))


def _limit(a: Sequence[RunSeries], b: Sequence[RunSeries]) -> int:
    return max(run.limit_ns for run in (*a, *b))


def _calls(runs: Sequence[RunSeries], key: Key) -> float:
    return float(np.median([rank.calls[key] for run in runs for rank in run.ranks if key in rank.calls]))


def _often(runs: Sequence[RunSeries], pick: Pick) -> float | None:
    """Return the share of steps in which there is anything."""
    columns = [(pick(rank), len(rank.step_ns)) for run in runs for rank in run.ranks]
    shares = [len(column) / steps for column, steps in columns if column is not None and steps]
    return sum(shares) / len(shares) if shares else None


def _samples(runs: Sequence[RunSeries]) -> float | None:
    counts = [rank.samples for run in runs for rank in run.ranks]
    known = [count for count in counts if count is not None]
    return float(np.median(known)) if len(known) == len(counts) and known else None


def _phases(words: Collection[str | Phase]) -> set[Phase]:
    allowed = [str(phase) for phase in Phase]
    problems = [
        f"phase: {str(word)!r} is unknown; {nearest(str(word), allowed, 1)}"
        for word in words
        if str(word) not in allowed
    ]
    if problems:
        raise ConfigError(problems)
    return {Phase(word) for word in words}


def _pattern(name: str | None) -> re.Pattern[str] | None:
    try:
        return None if name is None else re.compile(name)
    except re.error as error:
        what = f"name: {name!r} is not a regular expression: {error}; allowed: the syntax of Python's re"
        raise ConfigError([what]) from None


def _check(**fractions: float | None) -> None:
    problems = [
        f"{name}: {value!r} is out of range; allowed: a fraction from 0 to below 10, such as 0.05"
        for name, value in fractions.items()
        if value is not None and not 0 <= value < 10
    ]
    if problems:
        raise ConfigError(problems)
