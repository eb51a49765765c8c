"""Compare the ranks of a run by their own records: name the slow ranks, with module and phase, and how it recurs.

Each row of the own work (``record``) is compared with the same row on the other ranks, step by step: a row varies much
less than the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ..base.frame import Nanoseconds, Phase
from ..base.stats.intervals import Interval, median_of_values
from ..base.stats.median import median
from .aligned import AlignedRow, align_rows, row_times
from .causes import Cause, find_cause
from .excess import MIN_SHARE, Excess, Kind, Times, late_steps, median_of_others, persistent_excess, rare_excess
from .record import COMM_ROW, OUTSIDE_ROW, WAIT_ROWS, RankRecord, SpanKey

MIN_COMMON_STEPS: Final = 10
"""Steps that all ranks must have recorded."""
WAITING_PART: Final = 1 / 3
"""The part of an excess by which the others wait longer in communication; the rest is noise, or the others' own."""
TOTAL: Final[SpanKey] = ("", Phase.OTHER)
"""All own work of a rank, as a row."""

NO_EXCESS: Final = Interval.exact(0.0)


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that the others wait for.

    ``excess_ns`` is its excess over the median of the others in a step: the median where it is persistent, else the
    mean over all steps. ``name`` and ``phase`` have most of it, namely ``name_ns``. ``gain_ns`` is the difference to
    the next slow rank: no step can get shorter by more. ``late`` is the number of steps in which the excess occurs,
    ``steps`` are these steps unless it is persistent, and ``period`` is their distance where it is regular. ``ratio``
    compares the rank's clock frequency or batch with the others', or is its wait for a processor.
    """

    rank: int
    kind: Kind
    cause: Cause
    name: str
    phase: Phase
    name_ns: int
    excess_ns: Interval
    gain_ns: int
    late: int
    steps: tuple[int, ...] = ()
    period: int | None = None
    ratio: float | None = None
    amount: str = ""
    """The amount of data that was compared: larger than the others' where that is the cause, else the same."""
    explained: float | None = None
    """The part of the excess that larger batches cost."""


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The comparison of ``world_size`` ranks; without ``steps``, ``missing`` gives the reason.

    ``slow`` are the ranks that the others wait for, the one with the largest excess first. ``rank`` is the one whose
    own work takes longest, by ``excess_ns`` more than the median of the others. ``absent`` are ranks without records of
    the same steps. ``unclear`` is the reason for which a difference has no culprit.
    """

    world_size: int
    missing: str | None = None
    steps: int = 0
    step_ns: int = 0
    rank: int = 0
    own_ns: tuple[int, ...] = ()
    """The median time of each rank's own work in a step."""
    excess_ns: Interval = NO_EXCESS
    slow: tuple[SlowRank, ...] = ()
    absent: tuple[int, ...] = ()
    unclear: str | None = None
    comm_ns: tuple[int, ...] = ()
    """The mean communication of each rank in a step; empty where ranks do not communicate."""
    pure_comm_ns: int | None = None
    """The mean communication of the rank that comes last in each step, and so waits for no other."""

    @property
    def compared(self) -> tuple[int, ...]:
        """The ranks of ``own_ns`` and ``comm_ns``, in their order."""
        return tuple(rank for rank in range(self.world_size) if rank not in self.absent)


class _Candidate(NamedTuple):
    """A rank's excess in one row."""

    row: AlignedRow
    excess: Excess

    @property
    def size(self) -> float:
        """The excess in nanoseconds of a step."""
        return self.excess.ns.middle


class _Compared(NamedTuple):
    """The records of the compared ranks in the same steps, and their times by rank and step."""

    records: list[RankRecord]
    steps: Nanoseconds
    rows: list[AlignedRow]
    lengths: Times
    own: Times
    comm: Times
    step_ns: float
    """The median step."""


def compare_ranks(records: Mapping[int, RankRecord], *, world_size: int | None = None) -> RankComparison:
    """Find the ranks that the others wait for, step by step; ranks without a record are absent."""
    world = world_size or len(records)
    absent = sorted(set(range(world)) - set(records))
    if absent and len(records) < 2:
        return RankComparison(world, f"the steps of {name_ranks(absent)}: on another machine, or not recorded")
    ranks, common = _common_steps(records)
    if len(ranks) < 2 or 2 * len(ranks) < world:
        shared = len(set.intersection(*(set(record.steps.tolist()) for record in records.values())))
        return RankComparison(world, f"steps that all ranks have recorded: {MIN_COMMON_STEPS} needed, {shared} so far")
    chosen = [records[rank].select(common) for rank in ranks]
    lengths = np.stack([record.step_ns for record in chosen]).astype(np.float64)
    own = np.stack([record.own_ns for record in chosen]).astype(np.float64)
    comm = row_times(chosen, COMM_ROW)
    compared = _Compared(chosen, common, list(align_rows(chosen)), lengths, own, comm, float(median(lengths)))
    found, unclear = _find_slow(compared)
    slow = _sum_up(found, compared, ranks)
    excess = own - median_of_others(own)
    longest = int(median(excess, axis=1).argmax())
    return RankComparison(
        world_size=world,
        steps=len(common),
        step_ns=round(compared.step_ns),
        rank=ranks[longest],
        own_ns=tuple(round(float(ns)) for ns in median(own, axis=1)),
        excess_ns=median_of_values(excess[longest]),
        slow=slow,
        absent=tuple(sorted(set(range(world)) - set(ranks))),
        unclear=unclear,
        comm_ns=tuple(round(float(ns)) for ns in comm.mean(axis=1)) if comm.any() else (),
        pure_comm_ns=round(float(comm.min(axis=0).mean())) if comm.any() else None,
    )


def name_ranks(ranks: Sequence[int]) -> str:
    """Return ranks as text: ``rank 3``, ``ranks 1, 2``; of many, the first ones."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:4]))}{', …' if len(ranks) > 4 else ''}"


def _common_steps(records: Mapping[int, RankRecord]) -> tuple[list[int], Nanoseconds]:
    """Return the ranks that can be compared and their steps: those with most steps, as long as they share enough."""
    ranks: list[int] = []
    common: set[int] = set()
    for rank in sorted(records, key=lambda rank: (-len(records[rank].steps), rank)):
        steps = set(records[rank].steps.tolist())
        shared = common & steps if ranks else steps
        if len(shared) >= MIN_COMMON_STEPS:
            ranks.append(rank)
            common = shared
    return sorted(ranks), np.array(sorted(common), dtype=np.int64)


def _find_slow(compared: _Compared) -> tuple[list[_Candidate], str | None]:
    """Return the excess of each slow rank by row, and the reason for which a difference has no culprit.

    An excess in no row alone has to be twice as large: processors of one machine differ by some percent.
    """
    step_ns, own, own_ns = compared.step_ns, compared.own, float(median(compared.own))
    rows = [row for row in compared.rows if row.key != COMM_ROW]
    large = [row for row in rows if float(median(row.times, axis=1).max()) >= MIN_SHARE * step_ns]
    total = AlignedRow(TOTAL, own)

    def rare(times: list[Times], min_share: float) -> list[tuple[int, Excess]]:
        late = [late_steps(one, step_ns, own_ns) for one in times]
        return rare_excess(late, compared.steps, compared.lengths, min_share=min_share)

    found = [_Candidate(row, one) for row in large for one in persistent_excess(row.times, step_ns, len(large) + 1)]
    named = {one.excess.at for one in found}
    whole = persistent_excess(own, step_ns, len(large) + 1, min_share=2 * MIN_SHARE)
    found += [_Candidate(total, one) for one in whole if one.at not in named]
    found += [_Candidate(rows[number], one) for number, one in rare([row.times for row in rows], MIN_SHARE / 2)]
    named = {one.excess.at for one in found}
    found += [_Candidate(total, one) for _, one in rare([own], MIN_SHARE) if one.at not in named]
    # A process that is stopped now and then is stopped in a row once, and outside of all spans the next time.
    for _, one in rare([own + row_times(compared.records, OUTSIDE_ROW)], MIN_SHARE):
        known = [other for other in found if other.excess.at == one.at]
        if any(other.excess.kind == "persistent" for other in known):
            continue
        if one.ns.middle > 1.5 * sum(other.size for other in known) and _others_wait(one, compared):
            found = [*(other for other in found if other.excess.at != one.at), _Candidate(total, one)]
    return _without_waits(found, compared)


def _without_waits(found: list[_Candidate], compared: _Compared) -> tuple[list[_Candidate], str | None]:
    """Drop the rows in which a rank waits for another; return why none is left where two ranks may be meant."""
    own = [one for one in found if one.row.key not in WAIT_ROWS]
    kept = list(own)
    for one in found:
        rival = max((other.size for other in own if other.excess.at != one.excess.at), default=0.0)
        if one.row.key in WAIT_ROWS and 2 * rival < one.size and _others_wait(one.excess, compared):
            kept.append(one)
    persistent = sorted((one for one in kept if one.excess.kind == "persistent"), key=lambda one: -one.size)
    of_rank = [[one for one in persistent if one.excess.at == at] for at in (0, 1)]
    if len(compared.records) == 2 and all(of_rank):
        sums = [sum(one.size for one in ones) for ones in of_rank]
        if 2 * min(sums) > max(sums):
            first, second = (f"{ones[0].row.key[0]} ({ones[0].row.key[1]})" for ones in of_rank)
            why = f"two ranks are slow by a similar time: {first} on one rank, {second} on the other"
            return [one for one in kept if one.excess.kind != "persistent"], why
    return kept, None


def _others_wait(excess: Excess, compared: _Compared) -> bool:
    """Return whether the others communicate longer than this rank by a part of its excess, then or a step later."""
    shorter = (median_of_others(compared.comm) - compared.comm)[excess.at]
    if excess.kind == "persistent":
        return float(median(shorter)) >= WAITING_PART * excess.ns.middle
    late = compared.steps[list(excess.late)]
    waited = shorter[np.isin(compared.steps, [*late, *(late + 1)])]
    return float(waited.sum()) >= WAITING_PART * excess.ns.middle * len(shorter)


def _sum_up(found: list[_Candidate], compared: _Compared, ranks: list[int]) -> tuple[SlowRank, ...]:
    """Return one entry a rank: its rows of the kind that costs most, summed, and named by the row with most of it."""
    chosen: dict[int, list[_Candidate]] = {}
    for one in sorted(found, key=lambda one: -one.size):
        entries = chosen.setdefault(one.excess.at, [one])
        if one is not entries[0] and one.excess.kind == entries[0].excess.kind:
            entries.append(one)
    sums = {at: _summed(entries) for at, entries in chosen.items()}
    slow = []
    for at, entries in chosen.items():
        first = entries[0].excess
        key, ns = _innermost(entries[0], compared)
        rival = max((sums[other].middle for other in sums if other != at), default=0.0)
        cause = find_cause(at, key, first.kind, first.late, compared.records, excess_ns=sums[at].middle)
        slow.append(
            SlowRank(
                rank=ranks[at],
                kind=first.kind,
                cause=cause.cause,
                name=key[0],
                phase=key[1],
                name_ns=round(ns),
                excess_ns=sums[at],
                gain_ns=round(max(sums[at].middle - rival, 0.0)),
                late=len(first.late),
                steps=() if first.kind == "persistent" else tuple(compared.steps[list(first.late)].tolist()),
                period=first.period,
                ratio=cause.ratio,
                amount=cause.amount,
                explained=cause.explained,
            )
        )
    return tuple(sorted(slow, key=lambda one: (-one.excess_ns.middle, one.rank)))


def _summed(entries: list[_Candidate]) -> Interval:
    """Return the excess of several rows of one rank together."""
    if entries[0].excess.kind != "persistent":
        return Interval(*(sum(one.excess.ns[end] for one in entries) for end in range(3)))
    at = entries[0].excess.at
    return median_of_values(sum((one.row.times - median_of_others(one.row.times))[at] for one in entries))


def _innermost(one: _Candidate, compared: _Compared) -> tuple[SpanKey, float]:
    """Return the row with most of an excess: one inside a row, where the rank itself has recorded it."""
    at, excess = one.excess.at, one.excess
    keys: Sequence[SpanKey] = one.row.inside
    if one.row.key == TOTAL:
        keys = [row.key for row in compared.rows if row.key not in WAIT_ROWS]
    best, most = one.row.key, 0.0
    for key in keys:
        beyond = row_times(compared.records, key)
        beyond = (beyond - median_of_others(beyond))[at]
        in_late = float(beyond[list(excess.late)].sum()) / len(beyond)
        ns = float(median(beyond)) if excess.kind == "persistent" else in_late
        if ns > most:
            best, most = key, ns
    if 2 * most < one.size and one.row.key != TOTAL:
        return one.row.key, one.size
    return best, min(most, one.size)
