"""Two small tables of a comparison for the reports: own work by rank and step, and excess by rank and row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..frame import Nanoseconds
from .aligned import align_rows
from .median_of_others import median_of_others
from .record import COMM_ROW, RankRecord, SpanKey


@dataclass(frozen=True, slots=True)
class RankMap:
    """The excess of each rank over the median of the others, in microseconds.

    ``by_step`` has a list a rank, with an entry for each of ``steps``, the first steps of the columns. ``by_row`` has
    a list a rank, with the mean excess in each of ``rows``, (name, phase), and is negative where a rank takes less.
    """

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    by_step: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[str, str], ...]
    by_row: tuple[tuple[int, ...], ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RankMap:
        """Read back the result of ``dataclasses.asdict``."""
        lists = {name: tuple(tuple(part) for part in data[name]) for name in ("by_step", "rows", "by_row")}
        return cls(tuple(data["ranks"]), tuple(data["steps"]), **lists)


def map_ranks(
    records: Sequence[RankRecord], ranks: Sequence[int], steps: Nanoseconds, named: Sequence[SpanKey]
) -> RankMap:
    """Return the tables of records of the same steps; the rows ``named`` come first."""
    ns_per_us = 1000
    own = np.zeros((len(records), len(steps)))
    rows = []
    for row in align_rows(records):
        if row.key == COMM_ROW:
            continue
        excess = row.times - median_of_others(row.times)
        own += excess
        keys = [key for key in row.inside if key in named] or [row.key]
        rows.append((keys[0], excess.mean(axis=1)))
    rows.sort(key=lambda row: (row[0] not in named, -float(np.abs(row[1]).max())))
    rows = rows[:12]
    bins = np.array_split(np.arange(len(steps)), min(len(steps), 64))
    by_step = np.stack([own[:, part].max(axis=1) for part in bins], axis=1)
    by_row = np.stack([excess for _, excess in rows], axis=1)
    size = by_step.max(axis=1) + by_row.max(axis=1) * float(len(bins))
    shown = sorted(np.argsort(-size, kind="stable")[:64].tolist())
    return RankMap(
        tuple(ranks[at] for at in shown),
        tuple(int(steps[part[0]]) for part in bins),
        tuple(tuple((by_step[at] / ns_per_us).round().astype(int).tolist()) for at in shown),
        tuple((name, str(phase)) for (name, phase), _ in rows),
        tuple(tuple((by_row[at] / ns_per_us).round().astype(int).tolist()) for at in shown),
    )
