"""Self times of sets of spans, as signed sums of total times; the terms are found once a layout.

The self time of a span is its total minus the totals of its children. Summed over a set of spans, most terms cancel, so
the self time of a phase or a name takes a few additions, and that of all of them one numpy call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..frame import Layout, Nanoseconds, Phase

Terms = Sequence[tuple[int, int]]
"""Spans with their signs."""


class SignedSums:
    """Several signed sums over one layout's spans, computed together."""

    __slots__ = ("_index", "_sign", "_starts")

    def __init__(self, sums: Sequence[Terms]) -> None:
        filled = [terms or ((0, 0),) for terms in sums]  # reduceat has no empty runs
        self._index = np.asarray([span for terms in filled for span, _ in terms], dtype=np.int64)
        self._sign = np.asarray([sign for terms in filled for _, sign in terms], dtype=np.int64)
        self._starts = np.cumsum([0, *(len(terms) for terms in filled[:-1])])

    def of(self, total_ns: Nanoseconds) -> Nanoseconds:
        """Return the sums for one step's spans. The last axis runs over them; steps may be stacked before it."""
        if not len(self._index):
            return np.zeros((*total_ns.shape[:-1], 0), dtype=np.int64)
        sums: Nanoseconds = np.add.reduceat(total_ns[..., self._index] * self._sign, self._starts, axis=-1)
        return sums


def self_time_terms(layout: Layout, spans: Sequence[int], phase: Phase) -> Terms:
    """Return the self time of the ``spans`` in ``phase`` as terms; ``spans`` must include all spans inside them."""
    inside = set(spans)
    terms = []
    for span in spans:
        parent = layout.parents[span]
        counted = layout.phases[span] is phase
        under = parent in inside and layout.phases[parent] is phase
        if counted != under:
            terms.append((span, 1 if counted else -1))
    return terms
