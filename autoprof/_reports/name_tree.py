"""The tree of names of a step: ``/`` nests names. Its structure is found once a layout, its times by one sum a step.

A node is a name at one place: below the name whose span contains it. Its phases are merged, so nothing is counted
twice, and children + self = parent holds exactly at every node. Names that were never measured (``A`` where only
``A/B`` was) become headers above their common parts; their time is the sum of these parts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

from .._stats.layout_cache import cached_by_layout
from .._stats.self_times import SignedSums, Terms, self_time_terms
from ..frame import LOGGED_LANE, MODULE_PHASES, TRAINING_LANE, Layout, Nanoseconds

VALUES: Final = 1 + len(MODULE_PHASES)
"""Numbers of a node: its total, and its time in each of ``MODULE_PHASES``."""


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
    """A node while the tree is built: its outermost spans (``entering``), and all spans in it."""

    name: str
    entering: list[int] = field(default_factory=list)
    spans: list[int] = field(default_factory=list)
    children: dict[str, _NodeDraft] = field(default_factory=dict)
    is_header: bool = False


class NameTree:
    """The tree of one layout: ``nodes`` with parents first; ``children[i + 1]`` are those of node ``i``."""

    __slots__ = ("_sums", "children", "nodes")

    def __init__(self, layout: Layout) -> None:
        self.nodes: list[NameNode] = []
        terms: list[Terms] = []
        others = {lane for lane in layout.lanes if lane > TRAINING_LANE}
        separate_places = [*_nest(layout, others), *_nest_logged(layout)]
        for places, separate in ((_nest(layout, {TRAINING_LANE}), False), (separate_places, True)):
            self._add(_with_headers(places, "", under_header=False), layout, terms, (), -1, 0, separate)
        self.children: list[list[int]] = [[] for _ in range(len(self.nodes) + 1)]
        for index, node in enumerate(self.nodes):
            if not node.is_separate or node.parent >= 0:
                self.children[node.parent + 1].append(index)
        self._sums = SignedSums(terms)

    @property
    def separate(self) -> list[int]:
        """The roots that are not part of the step's time."""
        return [index for index, node in enumerate(self.nodes) if node.is_separate and node.parent < 0]

    def values_ns(self, total_ns: Nanoseconds) -> Nanoseconds:
        """Return ``VALUES`` numbers for each node (nodes × ``VALUES``) from the spans' times; steps may be stacked."""
        return self._sums.of(total_ns).reshape(*total_ns.shape[:-1], len(self.nodes), VALUES)

    def _add(
        self,
        places: Iterable[_NodeDraft],
        layout: Layout,
        terms: list[Terms],
        path: tuple[str, ...],
        parent: int,
        depth: int,
        separate: bool,
    ) -> None:
        above = path[-1] + "/" if path else ""
        for place in places:
            own, index = (*path, place.name), len(self.nodes)
            label = place.name.removeprefix(above)
            calls = sum(layout.lanes[span] != LOGGED_LANE for span in place.entering)
            self.nodes.append(NameNode(own, label, parent, depth, place.is_header, separate, calls))
            terms.append([(span, 1) for span in place.entering])
            terms.extend(self_time_terms(layout, place.spans, phase) for phase in MODULE_PHASES)
            children = _with_headers(place.children.values(), place.name, under_header=place.is_header)
            self._add(children, layout, terms, own, index, depth + 1, separate)


def _nest(layout: Layout, lanes: set[int]) -> list[_NodeDraft]:
    """Nest the spans of these lanes by the names of the spans around them."""
    roots: dict[str, _NodeDraft] = {}
    chains: dict[int, tuple[_NodeDraft, ...]] = {}
    for span, (name, parent, lane) in enumerate(zip(layout.names, layout.parents, layout.lanes, strict=True)):
        if lane not in lanes:
            continue
        chain = chains.get(parent, ())
        if all(place.name != name for place in chain):
            among = chain[-1].children if chain else roots
            place = among.setdefault(name, _NodeDraft(name))
            place.entering.append(span)
            chain = (*chain, place)
        chains[span] = chain
        for place in chain:
            place.spans.append(span)
    return list(roots.values())


def _nest_logged(layout: Layout) -> list[_NodeDraft]:
    """Nest logged durations, which have no parent span, by their names."""
    places: dict[str, _NodeDraft] = {}
    for span, (name, lane) in enumerate(zip(layout.names, layout.lanes, strict=True)):
        if lane == LOGGED_LANE:
            place = places.setdefault(name, _NodeDraft(name))
            place.entering.append(span)
            place.spans.append(span)
    roots = []
    for name, place in places.items():
        parent = parent_name(name, places)
        if parent is None:
            roots.append(place)
        else:
            places[parent].children[name] = place
    return roots


def _with_headers(places: Iterable[_NodeDraft], above: str, *, under_header: bool) -> list[_NodeDraft]:
    """Put siblings that share an unmeasured prefix below a header of that name."""
    siblings = list(places)
    measured = {place.name for place in siblings}
    groups: dict[str, list[_NodeDraft]] = {}
    result = []
    for place in siblings:
        prefix = above + "/" if above else ""
        first, slash, _ = place.name[len(prefix) :].partition("/")
        if slash and place.name.startswith(prefix) and prefix + first not in measured:
            groups.setdefault(prefix + first, []).append(place)
        else:
            result.append(place)
    for group in groups.values():
        if under_header and len(group) == 1:
            result += group  # a header below a header adds no information
            continue
        name = _common_header([place.name for place in group])
        spans = [span for place in group for span in place.spans]
        entering = [span for place in group for span in place.entering]
        result.append(_NodeDraft(name, entering, spans, {place.name: place for place in group}, is_header=True))
    return result


def _common_header(names: Sequence[str]) -> str:
    """Return the longest common prefix of whole segments."""
    parts = [name.split("/")[:-1] for name in names]
    common = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))]
    return "/".join(common)


@cached_by_layout
def name_tree(layout: Layout) -> NameTree:
    """Return the tree of a layout."""
    return NameTree(layout)
