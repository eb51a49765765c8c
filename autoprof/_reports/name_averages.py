"""The running average of each name at its place in the tree of names."""

from __future__ import annotations

from typing import Final

from ..frame import Layout, StepFrame
from .name_tree import NameNode, name_tree

MAX_PLACES: Final = 4096
"""The most averages in memory; further names (a program may make up a new one each step) have none."""


class NameAverages:
    """The running average of every name at its place in the tree, over recorded steps with it. Bounded."""

    def __init__(self) -> None:
        self._sums: dict[tuple[tuple[str, ...], bool, bool], tuple[int, int]] = {}
        """The nanoseconds and the steps of each place."""

    def count(self, frame: StepFrame) -> None:
        """Add a step's frame, unless it is warm-up."""
        if frame.warmup:
            return
        tree = name_tree(frame.layout)
        for node, ns in zip(tree.nodes, tree.totals_ns(frame.total_ns).tolist(), strict=True):
            place = _place(node)
            total_ns, steps = self._sums.get(place, (0, 0))
            if steps or len(self._sums) < MAX_PLACES:
                self._sums[place] = total_ns + ns, steps + 1

    def of(self, layout: Layout) -> list[float | None]:
        """Return the average so far of each node in nanoseconds, None where there is none."""
        sums = (self._sums.get(_place(node)) for node in name_tree(layout).nodes)
        return [None if one is None else one[0] / one[1] for one in sums]


def _place(node: NameNode) -> tuple[tuple[str, ...], bool, bool]:
    """Return the place of a name, which may also be one of another thread and one of logged durations."""
    return node.path, node.is_separate, node.is_separate and not node.calls and not node.is_header
