"""The tree of names of a step: ``/`` nests names. Its structure is found once a layout, its times by one sum a step.

A node is a name at one place: below the name whose span contains it. Its phases are merged, so nothing is counted
twice, and children + self = parent holds exactly at every node. Names that were never measured (``A`` where only
``A/B`` was) become headers above their common parts; their time is the sum of these parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from posixpath import commonpath
from typing import Final

import numpy as np

from ..base.frame import LOGGED_LANE, TRAINING_LANE, Layout, Nanoseconds, StepFrame
from ..base.stats.layout_cache import cached_by_layout
from ..base.stats.name_lines import parent_name

MAX_PLACES: Final = 4096
"""The most averages in memory; further names (a program may make up a new one each step) have none."""


@dataclass(slots=True, eq=False)
class NameNode:
    """One name at one place, with its outermost spans there. ``label`` is the name without its parent's.

    ``path`` has the names from the root. ``is_separate`` nodes are not part of the step's time: other threads and
    logged durations. ``calls`` is the number of spans in its time, 0 for durations measured by another clock.
    """

    name: str
    spans: list[int] = field(default_factory=list)
    children: dict[str, NameNode] = field(default_factory=dict)
    is_header: bool = False
    is_separate: bool = False
    index: int = 0
    path: tuple[str, ...] = ()
    label: str = ""
    calls: int = 0


class NameTree:
    """The tree of one layout: all ``nodes``, parents first; ``roots`` of the step's time, and ``separate`` roots."""

    def __init__(self, layout: Layout) -> None:
        self.nodes: list[NameNode] = []
        others = {lane for lane in layout.lanes if lane > TRAINING_LANE}
        self.roots = self._add(_nest(layout, {TRAINING_LANE}), layout, NameNode(""))
        separate = [*_nest(layout, others), *_nest_logged(layout)]
        self.separate = self._add(separate, layout, NameNode("", is_separate=True))
        self._spans = [span for node in self.nodes for span in node.spans]
        self._starts = list(accumulate((len(node.spans) for node in self.nodes[:-1]), initial=0))

    def totals_ns(self, span_ns: Nanoseconds) -> Nanoseconds:
        """Return the total of each node from the spans' times."""
        if not self.nodes:
            return np.zeros(0, dtype=np.int64)
        totals: Nanoseconds = np.add.reduceat(span_ns[self._spans], self._starts)
        return totals

    def _add(self, siblings: Iterable[NameNode], layout: Layout, above: NameNode) -> list[NameNode]:
        """Add these nodes and all below them to the tree; return them with their headers."""
        prefix = above.path[-1] + "/" if above.path else ""
        placed = list(_with_headers(list(siblings), prefix, under_header=above.is_header))
        for node in placed:
            node.index, node.path, node.is_separate = len(self.nodes), (*above.path, node.name), above.is_separate
            node.label = node.name.removeprefix(prefix)
            node.calls = sum(layout.lanes[span] != LOGGED_LANE for span in node.spans)
            self.nodes.append(node)
            node.children = {one.name: one for one in self._add(node.children.values(), layout, node)}
        return placed


def _nest(layout: Layout, lanes: set[int]) -> Iterable[NameNode]:
    """Nest the spans of these lanes by the names of the spans around them; a name inside itself is one node."""
    roots: dict[str, NameNode] = {}
    chains: dict[int, tuple[NameNode, ...]] = {}
    for span, (name, parent, lane) in enumerate(zip(layout.names, layout.parents, layout.lanes, strict=True)):
        if lane not in lanes:
            continue
        chain = chains.get(parent, ())
        if all(draft.name != name for draft in chain):
            draft = (chain[-1].children if chain else roots).setdefault(name, NameNode(name))
            draft.spans.append(span)
            chain = (*chain, draft)
        chains[span] = chain
    return roots.values()


def _nest_logged(layout: Layout) -> Iterable[NameNode]:
    """Nest logged durations, which have no parent span, by their names."""
    drafts: dict[str, NameNode] = {}
    for span, (name, lane) in enumerate(zip(layout.names, layout.lanes, strict=True)):
        if lane == LOGGED_LANE:
            drafts.setdefault(name, NameNode(name)).spans.append(span)
    for name, draft in drafts.items():
        parent = parent_name(name, drafts)
        if parent is None:
            yield draft
        else:
            drafts[parent].children[name] = draft


def _with_headers(siblings: list[NameNode], prefix: str, *, under_header: bool) -> Iterable[NameNode]:
    """Put siblings that share an unmeasured prefix below a header of that name."""
    measured = {draft.name for draft in siblings}
    groups: dict[str, list[NameNode]] = {}
    for draft in siblings:
        first, slash, _ = draft.name.removeprefix(prefix).partition("/")
        if slash and draft.name.startswith(prefix) and prefix + first not in measured:
            groups.setdefault(prefix + first, []).append(draft)
        else:
            yield draft
    for group in groups.values():
        if under_header and len(group) == 1:
            yield from group  # a header below a header adds no information
            continue
        name = commonpath([draft.name.rpartition("/")[0] for draft in group])
        spans = [span for draft in group for span in draft.spans]
        yield NameNode(name, spans, {draft.name: draft for draft in group}, is_header=True)


@cached_by_layout
def name_tree(layout: Layout) -> NameTree:
    """Return the tree of a layout."""
    return NameTree(layout)


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
