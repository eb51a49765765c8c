"""The tree of names of a step: ``/`` nests names. Its structure is found once a layout, its times by one sum a step.

A node is a name at one place: below the name whose span contains it. Its phases are merged, so nothing is counted
twice, and children + self = parent holds exactly at every node. Names that were never measured (``A`` where only
``A/B`` was) become headers above their common parts; their time is the sum of these parts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from posixpath import commonpath
from typing import NamedTuple

import numpy as np

from .._stats.layout_cache import cached_by_layout
from ..frame import LOGGED_LANE, TRAINING_LANE, Layout, Nanoseconds


def parent_name(name: str, names: Container[str]) -> str | None:
    """Return the longest of ``names`` that is a proper prefix of ``name`` in whole segments: ``A`` for ``A/B/C``."""
    prefix = name.rpartition("/")[0]
    while prefix and prefix not in names:
        prefix = prefix.rpartition("/")[0]
    return prefix or None


class NameNode(NamedTuple):
    """One name at one place. ``label`` is the name without its parent's; ``parent`` is an index, -1 for a root.

    ``path`` has the names from the root. ``is_separate`` nodes are not part of the step's time: other threads and
    logged durations. ``calls`` is the number of spans in its time, 0 for durations measured by another clock.
    """

    path: tuple[str, ...]
    label: str
    parent: int
    depth: int
    is_header: bool
    is_separate: bool
    calls: int


@dataclass(slots=True)
class _NodeDraft:
    """A node while the tree is built, with its outermost spans."""

    name: str
    spans: list[int] = field(default_factory=list)
    children: dict[str, _NodeDraft] = field(default_factory=dict)
    is_header: bool = False


class NameTree:
    """The tree of one layout: ``nodes`` with parents first; ``children[i + 1]`` are those of node ``i``."""

    def __init__(self, layout: Layout) -> None:
        self.nodes: list[NameNode] = []
        self._spans: list[int] = []
        self._starts: list[int] = []
        others = {lane for lane in layout.lanes if lane > TRAINING_LANE}
        self._add(_nest(layout, {TRAINING_LANE}), layout, (), -1, is_separate=False)
        self._add([*_nest(layout, others), *_nest_logged(layout)], layout, (), -1, is_separate=True)
        self.children: list[list[int]] = [[] for _ in range(len(self.nodes) + 1)]
        for index, node in enumerate(self.nodes):
            if not node.is_separate or node.parent >= 0:
                self.children[node.parent + 1].append(index)

    @property
    def separate(self) -> list[int]:
        """The roots that are not part of the step's time."""
        return [index for index, node in enumerate(self.nodes) if node.is_separate and node.parent < 0]

    def totals_ns(self, span_ns: Nanoseconds) -> Nanoseconds:
        """Return the total of each node from the spans' times."""
        if not self.nodes:
            return np.zeros(0, dtype=np.int64)
        totals: Nanoseconds = np.add.reduceat(span_ns[self._spans], self._starts)
        return totals

    def _add(
        self, drafts: Iterable[_NodeDraft], layout: Layout, path: tuple[str, ...], parent: int, *, is_separate: bool
    ) -> None:
        above = path[-1] + "/" if path else ""
        under_header = parent >= 0 and self.nodes[parent].is_header
        for draft in _with_headers(list(drafts), above, under_header=under_header):
            own, index = (*path, draft.name), len(self.nodes)
            calls = sum(layout.lanes[span] != LOGGED_LANE for span in draft.spans)
            label = draft.name.removeprefix(above)
            self.nodes.append(NameNode(own, label, parent, len(path), draft.is_header, is_separate, calls))
            self._starts.append(len(self._spans))
            self._spans += draft.spans
            self._add(draft.children.values(), layout, own, index, is_separate=is_separate)


def _nest(layout: Layout, lanes: set[int]) -> Iterable[_NodeDraft]:
    """Nest the spans of these lanes by the names of the spans around them; a name inside itself is one node."""
    roots: dict[str, _NodeDraft] = {}
    chains: dict[int, tuple[_NodeDraft, ...]] = {}
    for span, (name, parent, lane) in enumerate(zip(layout.names, layout.parents, layout.lanes, strict=True)):
        if lane not in lanes:
            continue
        chain = chains.get(parent, ())
        if all(draft.name != name for draft in chain):
            draft = (chain[-1].children if chain else roots).setdefault(name, _NodeDraft(name))
            draft.spans.append(span)
            chain = (*chain, draft)
        chains[span] = chain
    return roots.values()


def _nest_logged(layout: Layout) -> Iterable[_NodeDraft]:
    """Nest logged durations, which have no parent span, by their names."""
    drafts: dict[str, _NodeDraft] = {}
    for span, (name, lane) in enumerate(zip(layout.names, layout.lanes, strict=True)):
        if lane == LOGGED_LANE:
            drafts.setdefault(name, _NodeDraft(name)).spans.append(span)
    for name, draft in drafts.items():
        parent = parent_name(name, drafts)
        if parent is None:
            yield draft
        else:
            drafts[parent].children[name] = draft


def _with_headers(siblings: list[_NodeDraft], prefix: str, *, under_header: bool) -> Iterable[_NodeDraft]:
    """Put siblings that share an unmeasured prefix below a header of that name."""
    measured = {draft.name for draft in siblings}
    groups: dict[str, list[_NodeDraft]] = {}
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
        yield _NodeDraft(name, spans, {draft.name: draft for draft in group}, is_header=True)


@cached_by_layout
def name_tree(layout: Layout) -> NameTree:
    """Return the tree of a layout."""
    return NameTree(layout)
