"""The excess of each rank in each row, for the report's figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .aligned import AlignedRow
from .median_of_others import median_of_others
from .record import COMM_ROW, SpanKey


@dataclass(frozen=True, slots=True)
class RankMap:
    """The mean excess of at most 64 ranks over the median of the others, in microseconds.

    ``by_row`` has a list a rank with an entry for each of ``rows``, (name, phase).
    """

    ranks: tuple[int, ...]
    rows: tuple[tuple[str, str], ...]
    by_row: tuple[tuple[int, ...], ...]


def map_ranks(aligned: Sequence[AlignedRow], ranks: Sequence[int], named: Sequence[SpanKey]) -> RankMap:
    """Return the largest excess of the ranks; the rows ``named`` come first."""
    ns_per_us = 1000
    rows = []
    for row in aligned:
        if row.key != COMM_ROW:
            key = next((key for key in row.inside if key in named), row.key)
            rows.append((key, (row.times - median_of_others(row.times)).mean(axis=1)))
    rows.sort(key=lambda row: (row[0] not in named, -float(np.abs(row[1]).max())))
    rows = rows[:12]
    excess = (np.stack([ns for _, ns in rows], axis=1) / ns_per_us).round().astype(int)
    shown = sorted(np.argsort(-excess.max(axis=1), kind="stable")[:64].tolist())
    return RankMap(
        tuple(ranks[at] for at in shown),
        tuple((name, str(phase)) for (name, phase), _ in rows),
        tuple(tuple(excess[at].tolist()) for at in shown),
    )
