"""Compare the ranks of a run by their own records: name the slow ranks, with module and phase, and how it recurs.

In data parallel training every rank's step is as long as the slowest rank's. The other ranks wait, in communication or
in the part of backward that belongs to no module (where DDP waits for its last buckets). The difference between ranks
is therefore in their own work: data, copies, forward and backward of modules, optimizer, user spans. Each row of it is
compared with the same row on the other ranks, step by step: a row varies much less than the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .._stats.intervals import Interval, median_of_values
from .._stats.median import median
from ..frame import Nanoseconds, Phase
from .aligned import AlignedRow, align_rows, row_times
from .causes import Cause, find_cause
from .excess import (
    MIN_SHARE,
    SHOWN_STEPS,
    WHOLE,
    Excess,
    Kind,
    LateSteps,
    Times,
    late_steps,
    persistent_excess,
    rare_excess,
)
from .late_comm import LateComm, find_late_comm
from .median_of_others import median_of_others
from .rank_map import RankMap, map_ranks
from .record import BACKWARD_ROW, COMM_ROW, OUTSIDE_ROW, RankRecord, SpanKey

MIN_COMMON_STEPS: Final = 10
"""Steps that all ranks must have recorded."""
EQUAL_EXCESS: Final = 0.7
"""Of two ranks, each slow in another row by nearly the same time, one waits for the other: the least ratio of both."""
MOVING: Final = 1.6
"""How many times the excess found in single rows all late steps of a rank have, where they are in no one row: a process
that is stopped now and then is stopped in a row once, and outside of all spans the next time."""
WAITING_PART: Final = 1 / 3
"""The part of an excess by which the others wait longer in communication; the rest is noise, or the others' own."""
TOTAL: Final[SpanKey] = ("", Phase.OTHER)
"""All own work of a rank, as a row."""


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that the others wait for.

    ``excess_ns`` is its excess over the median of the others in a step, with an interval: the median where it is
    persistent, else the mean over all steps. ``name`` and ``phase`` have most of it, namely ``name_ns``. ``late`` is
    the number of steps in which it occurs; the first of them are ``steps``, and ``period`` their distance where it is
    regular. ``ratio`` compares the rank's clock frequency or batch with the others', or is its wait for a processor.
    """

    rank: int
    kind: Kind
    cause: Cause
    name: str
    phase: Phase
    name_ns: int
    excess_ns: tuple[float, float, float]
    gain_ns: int
    late: int
    steps: tuple[int, ...] = ()
    period: int | None = None
    ratio: float | None = None

    @property
    def excess(self) -> Interval:
        """The excess and its confidence interval."""
        return Interval(*self.excess_ns)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SlowRank:
        """Read back the result of ``dataclasses.asdict``."""
        tuples = {"excess_ns": tuple(data["excess_ns"]), "steps": tuple(data["steps"])}
        return cls(**{**data, **tuples, "phase": Phase.add(data["phase"])})


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The comparison of ``world_size`` ranks; without ``steps``, ``missing`` gives the reason.

    ``slow`` are the ranks that the others wait for, the one with the largest excess first. ``rank`` is the first of
    them, or else the rank whose own work takes longest. ``excess_ns`` is the difference to the other ranks' median in
    each step, with its interval. ``gain_ns`` is the difference to the slowest other rank: no step can get shorter by
    more. ``phase`` and ``name`` have most of the excess, namely ``name_ns``. ``long_steps`` maps those of rank 0's
    longest steps that one rank's own work made long to that rank. ``absent`` are ranks without records of the same
    steps. ``unclear`` is the reason for which a difference has no culprit. ``comm_ns`` is the mean communication in a
    step by rank, ``pure_comm_ns`` that of the rank that comes last in each step, and so waits for no other.
    """

    world_size: int
    missing: str | None = None
    steps: int = 0
    step_ns: int = 0
    rank: int = 0
    own_ns: tuple[int, ...] = ()
    """The median time of each rank's own work in a step."""
    excess_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)
    gain_ns: int = 0
    phase: Phase | None = None
    name: str | None = None
    name_ns: int = 0
    long_steps: Mapping[str, int] = field(default_factory=dict)
    slow: tuple[SlowRank, ...] = ()
    absent: tuple[int, ...] = ()
    unclear: str | None = None
    comm_ns: tuple[int, ...] = ()
    pure_comm_ns: int | None = None
    map: RankMap | None = None
    late_comm: LateComm | None = None
    """Communication that takes longer on all ranks in some steps."""

    @property
    def excess(self) -> Interval:
        """The median excess and its confidence interval."""
        return Interval(*self.excess_ns)

    @property
    def compared(self) -> tuple[int, ...]:
        """The ranks of ``own_ns`` and ``comm_ns``, in their order."""
        return tuple(rank for rank in range(self.world_size) if rank not in self.absent)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RankComparison:
        """Read back the result of ``dataclasses.asdict``."""
        phase = None if data["phase"] is None else Phase.add(data["phase"])
        converted: dict[str, Any] = {
            "own_ns": tuple(data["own_ns"]),
            "excess_ns": tuple(data["excess_ns"]),
            "phase": phase,
        }
        for name in ("absent", "comm_ns"):
            converted[name] = tuple(data.get(name) or ())
        converted["slow"] = tuple(map(SlowRank.from_dict, data.get("slow") or ()))
        converted["map"] = None if data.get("map") is None else RankMap.from_dict(data["map"])
        late_comm = data.get("late_comm")
        converted["late_comm"] = None if late_comm is None else LateComm.from_dict(late_comm)
        return cls(**{**data, **converted})


class _Candidate(NamedTuple):
    """A rank's excess in one row."""

    row: AlignedRow
    excess: Excess


class _Waits(NamedTuple):
    """The communication of ranks in the compared steps, and the lengths of these, by rank and step."""

    steps: Nanoseconds
    comm: Times
    lengths: Times


def compare_ranks(
    records: Sequence[RankRecord] | Mapping[int, RankRecord],
    longest: tuple[int, ...] = (),
    *,
    world_size: int | None = None,
) -> RankComparison:
    """Find the ranks that the others wait for, step by step.

    ``records`` are those of all ranks, or by rank where some are absent; ``world_size`` is then the number of ranks.
    """
    every = dict(records) if isinstance(records, Mapping) else dict(enumerate(records))
    world = world_size or len(every)
    ranks, common = _common_steps(every)
    if len(ranks) < 2 or 2 * len(ranks) < world:
        shared = _shared_steps(list(every.values()))
        missing = f"steps that all ranks have recorded: {MIN_COMMON_STEPS} needed, {shared} so far"
        return RankComparison(world, missing)
    compared = [every[rank].select(common) for rank in ranks]
    lengths = np.stack([record.step_ns for record in compared]).astype(np.float64)
    own = np.stack([record.own_ns for record in compared]).astype(np.float64)
    comm = row_times(compared, COMM_ROW)
    found, unclear = _find_slow(compared, common, lengths, own, comm)
    slow = _sum_up(found, compared, ranks, common, float(median(lengths)))
    late_comm = find_late_comm(comm, common, lengths, _explained(found, len(common)))
    top = _top(slow, ranks, own)
    return RankComparison(
        world_size=world,
        steps=len(common),
        step_ns=round(float(median(lengths))),
        own_ns=tuple(round(float(ns)) for ns in median(own, axis=1)),
        long_steps=_explain_long_steps(own, lengths[0], common, ranks, longest),
        slow=slow,
        absent=tuple(sorted(set(range(world)) - set(ranks))),
        unclear=unclear,
        comm_ns=tuple(round(float(ns)) for ns in comm.mean(axis=1)) if comm.any() else (),
        pure_comm_ns=round(float(comm.min(axis=0).mean())) if comm.any() else None,
        map=map_ranks(compared, ranks, common, tuple((one.name, one.phase) for one in slow)),
        late_comm=late_comm,
        **top,
    )


def name_ranks(ranks: Sequence[int]) -> str:
    """Return ranks as text: ``rank 3``, ``ranks 1, 2``; of many, the first ones."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:4]))}{', …' if len(ranks) > 4 else ''}"


def _common_steps(records: Mapping[int, RankRecord]) -> tuple[list[int], Nanoseconds]:
    """Return the ranks that can be compared and their steps: those with most steps, as long as they share enough."""
    ranks: list[int] = []
    common: set[int] = set()
    for rank in sorted(records, key=lambda rank: (-len(records[rank].steps), rank)):
        steps = records[rank].steps
        shared = common & set(steps.tolist()) if ranks else set(steps.tolist())
        if len(shared) >= MIN_COMMON_STEPS:
            ranks.append(rank)
            common = shared
    return sorted(ranks), np.array(sorted(common), dtype=np.int64)


def _shared_steps(records: Sequence[RankRecord]) -> int:
    return len(set.intersection(*(set(record.steps.tolist()) for record in records))) if records else 0


def _find_slow(
    records: Sequence[RankRecord], common: Nanoseconds, lengths: Times, own: Times, comm: Times
) -> tuple[list[_Candidate], str | None]:
    """Return the excess of each slow rank by row, and the reason for which a difference has no culprit."""
    step_ns, own_ns = float(median(lengths)), float(median(own))
    rows = [row for row in align_rows(records) if row.key != COMM_ROW]
    large = [row for row in rows if float(median(row.times, axis=1).max()) >= MIN_SHARE * step_ns]
    found = [_Candidate(row, one) for row in large for one in persistent_excess(row.times, step_ns, len(large) + 1)]
    total = AlignedRow(TOTAL, own)
    named = {one.excess.at for one in found}
    whole = persistent_excess(own, step_ns, len(large) + 1, min_share=WHOLE * MIN_SHARE)
    found += [_Candidate(total, one) for one in whole if one.at not in named]
    late: list[LateSteps] = [late_steps(row.times, step_ns, own_ns) for row in rows]
    found += [_Candidate(rows[number], one) for number, one in rare_excess(late, common, lengths)]
    named = {one.excess.at for one in found}
    spread = rare_excess([late_steps(own, step_ns, own_ns)], common, lengths, min_share=WHOLE * MIN_SHARE / 2)
    found += [_Candidate(total, one) for _, one in spread if one.at not in named]
    waits = _Waits(common, comm, lengths)
    late = [late_steps(own + row_times(records, OUTSIDE_ROW), step_ns, own_ns)]
    for _, one in rare_excess(late, common, lengths, min_share=WHOLE * MIN_SHARE / 2):
        known = [other for other in found if other.excess.at == one.at]
        if any(other.excess.kind == "persistent" for other in known):
            continue
        if one.ns.middle > MOVING * sum(other.excess.ns.middle for other in known) and _others_wait(one, waits):
            found = [*(other for other in found if other not in known), _Candidate(total, one)]
    return _without_waits(found, waits)


def _without_waits(found: list[_Candidate], waits: _Waits) -> tuple[list[_Candidate], str | None]:
    """Drop the rows in which a rank waits for another; return why none is left where two ranks may be meant."""
    own = [one for one in found if one.row.key not in (OUTSIDE_ROW, BACKWARD_ROW)]
    kept = list(own)
    for one in found:
        if one in own:
            continue
        rival = max((other.excess.ns.middle for other in own if other.excess.at != one.excess.at), default=0.0)
        if 2 * rival < one.excess.ns.middle and _others_wait(one.excess, waits):
            kept.append(one)
    persistent = [one for one in kept if one.excess.kind == "persistent"]
    if len(waits.comm) == 2 and len({one.excess.at for one in persistent}) == 2:
        sums = [sum(one.excess.ns.middle for one in persistent if one.excess.at == at) for at in (0, 1)]
        if min(sums) >= EQUAL_EXCESS * max(sums):
            first, second = (max((c for c in persistent if c.excess.at == at), key=_size) for at in (0, 1))
            why = f"{_name(first.row.key)} on one rank, {_name(second.row.key)} on the other"
            return [one for one in kept if one not in persistent], f"two ranks are slow by the same time: {why}"
    return kept, None


def _size(one: _Candidate) -> float:
    return one.excess.ns.middle


def _name(key: SpanKey) -> str:
    return f"{key[0]} ({key[1]})"


def _others_wait(excess: Excess, waits: _Waits) -> bool:
    """Return whether the others communicate longer than this rank by a part of its excess, then or a step later.

    Where the step after a late one is not compared, the rank's step has to be longer than those of the others: they
    wait in a step that no rank has recorded.
    """
    shorter = (median_of_others(waits.comm) - waits.comm)[excess.at]
    if excess.kind == "persistent":
        return float(median(shorter)) >= WAITING_PART * excess.ns.middle
    known = {int(step): index for index, step in enumerate(waits.steps)}
    later = {index: known.get(int(waits.steps[index]) + 1) for index in excess.late}
    at = {*later, *(index for index in later.values() if index is not None)}
    longer = (waits.lengths - median_of_others(waits.lengths))[excess.at]
    unseen = sum(float(longer[index]) for index, following in later.items() if following is None)
    return float(shorter[sorted(at)].sum()) + unseen >= WAITING_PART * excess.ns.middle * len(shorter)


def _sum_up(
    found: list[_Candidate], records: Sequence[RankRecord], ranks: list[int], common: Nanoseconds, step_ns: float
) -> tuple[SlowRank, ...]:
    """Return one entry a rank: its rows of the kind that costs most, summed, and named by the row with most of it."""
    chosen: dict[int, list[_Candidate]] = {}
    for at in {one.excess.at for one in found}:
        of_rank = [one for one in found if one.excess.at == at]
        first = max(of_rank, key=_size).excess.kind
        chosen[at] = sorted((one for one in of_rank if one.excess.kind == first), key=_size, reverse=True)
    sums = {at: _summed(entries) for at, entries in chosen.items()}
    slow = []
    for at, entries in chosen.items():
        key, ns = _innermost(entries[0], records)
        kind, late = entries[0].excess.kind, entries[0].excess.late
        rival = max((sums[other].middle for other in sums if other != at), default=0.0)
        cause, ratio = find_cause(at, key, kind, entries[0].excess.late, records, share=sums[at].middle / step_ns)
        slow.append(
            SlowRank(
                rank=ranks[at],
                kind=kind,
                cause=cause,
                name=key[0],
                phase=key[1],
                name_ns=round(ns),
                excess_ns=(sums[at].low, sums[at].middle, sums[at].high),
                gain_ns=round(max(sums[at].middle - rival, 0.0)),
                late=len(late),
                steps=() if kind == "persistent" else tuple(common[list(late[:SHOWN_STEPS])].tolist()),
                period=entries[0].excess.period,
                ratio=ratio,
            )
        )
    return tuple(sorted(slow, key=lambda one: (-one.excess.middle, one.rank)))


def _summed(entries: list[_Candidate]) -> Interval:
    """Return the excess of several rows of one rank together."""
    if len(entries) == 1:
        return entries[0].excess.ns
    at = entries[0].excess.at
    if entries[0].excess.kind != "persistent":
        return Interval(*(sum(one.excess.ns[end] for one in entries) for end in range(3)))
    return median_of_values(sum((one.row.times - median_of_others(one.row.times))[at] for one in entries))


def _innermost(one: _Candidate, records: Sequence[RankRecord]) -> tuple[SpanKey, float]:
    """Return the row with most of an excess: one inside a row, where the rank itself has recorded it."""
    at, excess = one.excess.at, one.excess
    keys: Sequence[SpanKey] = one.row.inside
    if one.row.key == TOTAL:
        keys = [row.key for row in align_rows(records) if row.key not in (COMM_ROW, OUTSIDE_ROW, BACKWARD_ROW)]
    best, most = one.row.key, 0.0
    for key in keys:
        beyond = row_times(records, key)
        beyond = (beyond - median_of_others(beyond))[at]
        ns = (
            float(median(beyond))
            if excess.kind == "persistent"
            else float(beyond[list(excess.late)].sum()) / len(beyond)
        )
        if ns > most:
            best, most = key, ns
    if 2 * most < excess.ns.middle and one.row.key != TOTAL:
        return one.row.key, excess.ns.middle
    return best, min(most, excess.ns.middle)


def _explained(found: list[_Candidate], count: int) -> frozenset[int]:
    """Return the steps that a slow rank may have made long: a rank that recurs may be late in others unseen."""
    rare = [one.excess for one in found if one.excess.kind != "persistent"]
    if any(one.kind == "recurring" for one in rare):
        return frozenset(range(count))
    return frozenset(at + more for one in rare for at in one.late for more in (0, 1))


def _top(slow: tuple[SlowRank, ...], ranks: list[int], own: Times) -> dict[str, Any]:
    """Return the fields of the slowest rank; where none is slow, of the one whose own work takes longest."""
    if slow:
        one = slow[0]
        return {
            "rank": one.rank,
            "excess_ns": one.excess_ns,
            "gain_ns": one.gain_ns,
            "phase": one.phase,
            "name": one.name,
            "name_ns": one.name_ns,
        }
    excess = own - median_of_others(own)
    at = int(median(excess, axis=1).argmax())
    return {"rank": ranks[at], "excess_ns": tuple(median_of_values(excess[at]))}


def _explain_long_steps(
    own: Times, lengths: npt.NDArray[np.float64], steps: Nanoseconds, ranks: list[int], longest: tuple[int, ...]
) -> dict[str, int]:
    """Return the rank whose own work explains half of the excess of each long step over the median step."""
    usual, typical = median(own, axis=1), float(median(lengths))
    explained = {}
    for step in sorted(set(longest) & set(steps.tolist())):
        at = int(np.searchsorted(steps, step))
        extra = own[:, at] - usual
        most = int(extra.argmax())
        if 2 * extra[most] >= lengths[at] - typical > 0:
            explained[str(step)] = ranks[most]
    return explained
