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
            index = self._places_of(frame.layout, tree)
            self._sums[index] += tree.totals_ns(frame.total_ns)
            self._counts[index] += index < MAX_PLACES

    def of(self, layout: Layout) -> list[float | None]:
        """Return the average so far of each node in nanoseconds, None where there is none."""
        index = self._places_of(layout, name_tree(layout))
        counts = self._counts[index]
        means = self._sums[index] / np.maximum(counts, 1)
        return [mean if count else None for mean, count in zip(means.tolist(), counts.tolist(), strict=True)]

    def _places_of(self, layout: Layout, tree: NameTree) -> Nanoseconds:
        index = self._index.get(layout)
        if index is None:
            if len(self._index) >= 128:
                self._index.clear()
            places = []
            for node in tree.nodes:
                is_logged = node.is_separate and not node.calls and not node.is_header
                place = node.path, node.is_separate, is_logged  # a name may also be another thread's and a logged one
                places.append(min(self._places.setdefault(place, len(self._places)), MAX_PLACES))
                if len(self._places) > MAX_PLACES:
                    del self._places[place]
            index = self._index[layout] = np.asarray(places, dtype=np.int64)
        return index
