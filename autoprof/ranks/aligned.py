"""Rows of several ranks side by side, by name: ranks may have recorded other modules of the same model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .record import OUTSIDE_ROW, WAIT_ROWS, RankRecord, SpanKey

Times = npt.NDArray[np.float64]


class AlignedRow(NamedTuple):
    """A row that all ranks can be compared by: nanoseconds by rank and step.

    ``inside`` are the rows whose time it includes because some rank has not recorded them as rows of their own.
    """

    key: SpanKey
    times: Times
    inside: tuple[SpanKey, ...] = ()


def align_rows(records: Sequence[RankRecord]) -> Iterator[AlignedRow]:
    """Yield the rows of records of the same steps.

    A row that one rank has in a step and another has not is part of the nearest row around it that all ranks have in
    the same steps. Without such a row, time of modules is compared together with that outside of all spans, which
    holds it on a rank without modules; any other row is compared alone, and takes no time on the other ranks.
    """
    keys = list(dict.fromkeys(key for record in records for key in record.rows))
    alike = {key for key in keys if key in WAIT_ROWS or _is_alike(records, key)}
    around = {key: parent for record in records for key, parent in record.parents.items()}
    inside: dict[SpanKey, list[SpanKey]] = {}
    for key in keys:
        base = key if key in alike else row_around(key, around, alike)
        inside.setdefault(base, [])
        if base != key:
            inside[base].append(key)
    for base, members in inside.items():
        times = row_times(records, base)
        for member in members:
            times += row_times(records, member)
        yield AlignedRow(base, times, tuple(members))


def row_times(records: Sequence[RankRecord], key: SpanKey) -> Times:
    """Return the nanoseconds of a row by rank and step, 0 where a rank has not recorded it."""
    times = np.zeros((len(records), len(records[0].steps)))
    for at, record in enumerate(records):
        if key in record.rows:
            times[at] = record.rows[key]
    return times


def _is_alike(records: Sequence[RankRecord], key: SpanKey) -> bool:
    """Return whether all ranks have a row in the same steps."""
    has = [record.rows[key] > 0 for record in records if key in record.rows]
    return len(has) == len(records) and all(np.array_equal(one, has[0]) for one in has)


def row_around(key: SpanKey, parents: Mapping[SpanKey, SpanKey], among: Collection[SpanKey]) -> SpanKey:
    """Return the nearest row around a row that is among these.

    Where there is none: for a module the row outside of all spans, else the outermost row.
    """
    seen, at = {key}, key
    while (parent := parents.get(at) or _outer(at)) is not None and parent not in seen:
        if parent in among:
            return parent
        seen.add(parent)
        at = parent
    return OUTSIDE_ROW if at[1].traits.in_module else at


def _outer(key: SpanKey) -> SpanKey | None:
    """Return the row around a row by its name alone, where no record names it."""
    outer, slash, _ = key[0].rpartition("/")
    return (outer, key[1]) if slash else None
