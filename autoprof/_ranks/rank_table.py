"""A row for each rank: its steps, its own work, and the row of its profile that exceeds the other ranks' by most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .._stats.median import median
from ..frame import Nanoseconds, Phase
from .median_of_others import median_of_others
from .record import WAIT_ROWS, RankRecord, SpanKey


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank. Times are medians over its steps; ``excess_ns`` is over the median of the other ranks, step by step.

    ``name`` and ``phase`` have the largest excess of mean self time, ``name_ns``; None where no row has an excess.
    """

    rank: int
    steps: int
    step_ns: int
    own_ns: int
    excess_ns: int
    name: str | None
    phase: Phase | None
    name_ns: int


def rank_rows(records: Mapping[int, RankRecord]) -> list[RankRow]:
    """Return a row for each rank, by rank; the excess is 0 for a single rank and without common steps."""
    ranks = sorted(records)
    excess = _own_excess(records, ranks)
    places = _largest_rows(records, ranks)
    return [
        RankRow(
            rank,
            len(records[rank].steps),
            _median(records[rank].step_ns),
            _median(records[rank].own_ns),
            excess[rank],
            *places[rank],
        )
        for rank in ranks
    ]


def _median(ns: Nanoseconds) -> int:
    return round(float(median(ns))) if len(ns) else 0


def _own_excess(records: Mapping[int, RankRecord], ranks: list[int]) -> dict[int, int]:
    common = records[ranks[0]].steps if ranks else np.zeros(0, dtype=np.int64)
    for rank in ranks[1:]:
        common = np.intersect1d(common, records[rank].steps, assume_unique=True)
    if len(ranks) < 2 or not len(common):
        return dict.fromkeys(ranks, 0)
    own = np.stack([records[rank].own_ns[np.searchsorted(records[rank].steps, common)] for rank in ranks])
    excess = median(own - median_of_others(own), axis=1)
    return {rank: round(float(ns)) for rank, ns in zip(ranks, excess, strict=True)}


def _largest_rows(
    records: Mapping[int, RankRecord], ranks: list[int]
) -> dict[int, tuple[str | None, Phase | None, int]]:
    keys: dict[SpanKey, int] = {}
    for rank in ranks:
        for key in records[rank].rows:
            if key not in WAIT_ROWS:
                keys.setdefault(key, len(keys))
    none = dict.fromkeys(ranks, (None, None, 0))
    if len(ranks) < 2 or not keys:
        return dict(none)
    means = np.zeros((len(ranks), len(keys)))
    for at, rank in enumerate(ranks):
        for key, ns in records[rank].rows.items():
            if key in keys:
                means[at, keys[key]] = ns.mean()
    excess = means - median_of_others(means)
    names = list(keys)
    found: dict[int, tuple[str | None, Phase | None, int]] = dict(none)
    for at, rank in enumerate(ranks):
        column = int(excess[at].argmax())
        if excess[at, column] > 0:
            found[rank] = (*names[column], round(float(excess[at, column])))
    return found
