"""A row for each rank: its steps, its own work, and the row of its profile that exceeds the other ranks' by most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from .._stats.median import median
from ..frame import Nanoseconds, Phase
from .median_of_others import median_of_others
from .record import WAIT_ROWS, RankRecord


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
    ordered = [records[rank] for rank in ranks]
    excess = np.zeros(len(ranks))
    common: Nanoseconds = reduce(np.intersect1d, (record.steps for record in ordered)) if ordered else np.zeros(0, int)
    if len(ranks) > 1 and len(common):
        own = np.stack([record.select(common).own_ns for record in ordered])
        excess = median(own - median_of_others(own), axis=1)
    keys = list(dict.fromkeys(key for record in ordered for key in record.rows if key not in WAIT_ROWS))
    zero = np.zeros(1)
    means = np.array([[record.rows.get(key, zero).mean() for key in keys] for record in ordered])
    beyond = means - median_of_others(means) if len(ranks) > 1 and keys else np.zeros((len(ranks), 1))
    rows = []
    for at, record in enumerate(ordered):
        most = int(beyond[at].argmax())
        ns = round(float(beyond[at, most]))
        name, phase = keys[most] if ns > 0 else (None, None)
        step_ns, own_ns = (round(float(median(times))) for times in (record.step_ns, record.own_ns))
        excess_ns = round(float(excess[at]))
        rows.append(RankRow(ranks[at], len(record.steps), step_ns, own_ns, excess_ns, name, phase, ns))
    return rows
