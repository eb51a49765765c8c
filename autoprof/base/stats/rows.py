"""The rows of a layout, and the sums of its spans by row; found once a layout and used for all its steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..frame import Layout, Nanoseconds, Phase
from .layout_cache import cached_by_layout


class RowKey(NamedTuple):
    """The identity of a row: all spans with this name, phase and lane are added up."""

    name: str
    phase: Phase
    lane: int


class StepRows:
    """The rows of one layout.

    ``keys``, ``fqns``, ``calls`` and ``parents`` (indices of rows, -1 for none) have one entry a row; ``of_span`` has
    the row of each span, ``outermost`` the spans that lie in no other of their row.
    """

    def __init__(self, layout: Layout) -> None:
        index: dict[RowKey, int] = {}
        rows = [
            index.setdefault(RowKey(*key), len(index))
            for key in zip(layout.names, layout.phases, layout.lanes, strict=True)
        ]
        self.keys: tuple[RowKey, ...] = tuple(index)
        fqns: list[str | None] = [None] * len(index)
        parents = [-2] * len(index)
        outermost = []
        for span, row in enumerate(rows):
            ancestor, nested = layout.parents[span], False
            nearest = -1
            while ancestor >= 0:
                if rows[ancestor] == row:
                    nested = True
                    break
                if nearest < 0:
                    nearest = rows[ancestor]
                ancestor = layout.parents[ancestor]
            outermost.append(not nested)
            if parents[row] == -2 and not nested:
                parents[row] = nearest
                fqns[row] = layout.fqns[span]
        self.parents: tuple[int, ...] = tuple(parents)
        self.fqns: tuple[str | None, ...] = tuple(fqns)
        self.of_span: Nanoseconds = np.asarray(rows, dtype=np.int64)
        self.calls = np.bincount(self.of_span, weights=layout.calls, minlength=len(index)).astype(np.int64)
        self._all, self._all_starts = _group(rows, np.ones(len(rows), dtype=bool))
        self._outer, self._outer_starts = _group(rows, np.asarray(outermost, dtype=bool))
        self.outermost = np.flatnonzero(outermost)

    def totals(self, ns: Nanoseconds) -> Nanoseconds:
        """Sum the spans' ``ns`` (last axis: spans) by row; a span inside another of its row is not counted again."""
        return _sums(ns, self._outer, self._outer_starts)

    def sums(self, ns: Nanoseconds) -> Nanoseconds:
        """Sum all spans' ``ns`` by row, which is right for self times because they never overlap."""
        return _sums(ns, self._all, self._all_starts)


def _group(rows: list[int], chosen: npt.NDArray[np.bool_]) -> tuple[Nanoseconds, Nanoseconds]:
    # Every row has at least one chosen span (its outermost), so the groups are the rows in order.
    spans = np.flatnonzero(chosen)
    of_row = np.asarray(rows, dtype=np.int64)[spans]
    order = np.argsort(of_row, kind="stable")
    return spans[order], np.unique(of_row[order], return_index=True)[1]


def _sums(ns: Nanoseconds, spans: Nanoseconds, starts: Nanoseconds) -> Nanoseconds:
    if not len(spans):
        return np.zeros((*ns.shape[:-1], 0), dtype=np.int64)
    if len(spans) == len(starts):
        return ns[..., spans]
    return np.add.reduceat(ns[..., spans], starts, axis=-1)


@cached_by_layout
def step_rows(layout: Layout) -> StepRows:
    """Return the rows of a layout."""
    return StepRows(layout)
