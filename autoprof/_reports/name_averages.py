"""The running average of each name at its place in the tree of names."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..frame import Layout, Nanoseconds, StepFrame
from .name_tree import NameTree, name_tree

MAX_PLACES: Final = 4096
"""The most averages in memory; further names (a program may make up a new one each step) have none."""


class NameAverages:
    """The running average of every name at its place in the tree, over recorded steps with it. Bounded."""

    def __init__(self) -> None:
        self._places: dict[tuple[tuple[str, ...], bool, bool], int] = {}
        self._index: dict[Layout, Nanoseconds] = {}
        self._sums = np.zeros(MAX_PLACES + 1, dtype=np.int64)
        self._counts = np.zeros(MAX_PLACES + 1, dtype=np.int64)

    def count(self, frame: StepFrame) -> None:
        """Add a step's frame, unless it is warm-up."""
        if not frame.warmup:
            tree = name_tree(frame.layout)
            self.add(frame.layout, tree, tree.values_ns(frame.total_ns)[:, 0])

    def add(self, layout: Layout, tree: NameTree, totals_ns: Nanoseconds) -> None:
        """Add the totals of the nodes of one recorded step."""
        index = self._places_of(layout, tree)
        self._sums[index] += totals_ns
        self._counts[index] += 1

    def of(self, layout: Layout, tree: NameTree) -> list[float | None]:
        """Return each node's average so far in nanoseconds, None where there is none."""
        index = self._places_of(layout, tree)
        counts = np.where(index == MAX_PLACES, 0, self._counts[index])
        means = (self._sums[index] / np.maximum(counts, 1)).tolist()
        return [mean if count else None for mean, count in zip(means, counts.tolist(), strict=True)]

    def _places_of(self, layout: Layout, tree: NameTree) -> Nanoseconds:
        index = self._index.get(layout)
        if index is None:
            if len(self._index) >= 128:
                self._index.clear()
            places = []
            for node in tree.nodes:
                is_logged = node.is_separate and not node.calls and not node.is_header
                place = node.path, node.is_separate, is_logged  # a name may also be another thread's and a logged one
                known = len(self._places) < MAX_PLACES or place in self._places
                places.append(self._places.setdefault(place, len(self._places)) if known else MAX_PLACES)
            index = self._index[layout] = np.asarray(places, dtype=np.int64)
        return index
