"""Times of the single modules that share a row: a block that takes much longer than its equals is named."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, TypeAlias

import numpy as np

from ..frame import Layout, Nanoseconds
from ..summary import SlowestMember
from .layout_cache import cached_by_layout
from .median import median
from .rows import RowKey, step_rows


class _Members(NamedTuple):
    """The modules of a layout's shared rows; their spans in order, and where those of each module start."""

    keys: list[tuple[RowKey, str]]
    spans: Nanoseconds
    starts: Nanoseconds


MemberPlaces: TypeAlias = tuple[_Members, Nanoseconds]
"""The modules of a layout's shared rows, and their places in ``MemberTimes``."""


@cached_by_layout
def _members(layout: Layout) -> _Members:
    rows = step_rows(layout)
    spans: dict[tuple[int, str], list[int]] = defaultdict(list)
    for span in rows.outermost:
        fqn = layout.fqns[span]
        if fqn is not None and layout.phases[span].traits.in_module:
            spans[int(rows.of_span[span]), fqn].append(int(span))
    calls: dict[int, list[int]] = defaultdict(list)
    for (row, _), of_module in spans.items():
        calls[row].append(sum(layout.calls[span] for span in of_module))
    # Modules that are called more often than others, as experts are, are no equals.
    # Of two modules that differ, neither is the usual one.
    chosen = [key for key in spans if len(calls[key[0]]) >= 3 and len(set(calls[key[0]])) == 1]
    counts = [len(spans[key]) for key in chosen]
    return _Members(
        [(rows.keys[row], fqn) for row, fqn in chosen],
        np.asarray([span for key in chosen for span in spans[key]], dtype=np.int64),
        np.cumsum([0, *counts[:-1]], dtype=np.int64) if counts else np.zeros(0, dtype=np.int64),
    )


class MemberTimes:
    """Add up the times of the modules of each shared row, and the logarithms of these times.

    The mean of the logarithms is that of a typical step: one long call in a hundred steps hardly changes it.
    """

    def __init__(self) -> None:
        self._index: dict[tuple[RowKey, str], int] = {}
        self._total = np.zeros((3, 0))
        """Steps, nanoseconds and logarithms, each of every module."""

    def places(self, layout: Layout) -> MemberPlaces | None:
        """Return the places of a layout's modules, made where they are new; None without a shared row."""
        members = _members(layout)
        if not members.keys:
            return None
        at = [self._index.setdefault(key, len(self._index)) for key in members.keys]
        more = len(self._index) - self._total.shape[1]
        self._total = np.concatenate([self._total, np.zeros((3, more))], axis=1)
        return members, np.asarray(at, dtype=np.int64)

    def add(self, places: MemberPlaces, total_ns: Nanoseconds) -> None:
        """Add steps of one layout (steps × spans)."""
        members, at = places
        ns = np.add.reduceat(total_ns[:, members.spans], members.starts, axis=1)
        self._total[0, at] += len(ns)
        self._total[1, at] += ns.sum(axis=0)
        self._total[2, at] += np.log(np.maximum(ns, 1)).sum(axis=0)

    def slowest(self) -> dict[RowKey, SlowestMember]:
        """Return the slowest module of each shared row."""
        of_row: dict[RowKey, list[tuple[str, int]]] = defaultdict(list)
        for (key, fqn), index in self._index.items():
            of_row[key].append((fqn, index))
        steps, ns, logarithm = self._total
        mean, typical = ns / np.maximum(steps, 1), np.exp(logarithm / np.maximum(steps, 1))
        found = {}
        for key, members in of_row.items():
            at = [place for _, place in members]
            slowest = int(typical[at].argmax())
            place = at[slowest]
            found[key] = SlowestMember(
                fqn=members[slowest][0],
                members=len(members),
                times=round(float(typical[place] / median(typical[at])), 3),
                excess_ns=round(max(float(mean[place] - median(mean[at])), 0.0)),
            )
        return found
