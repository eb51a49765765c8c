"""The tree of calls: every name below the name around it, phase by phase, with times that add up exactly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ..._stats.layout_cache import cached_by_layout
from ..._stats.rows import RowKey
from ...frame import TRAINING_LANE, Layout, Nanoseconds, Phase, StepFrame

MAX_CUTS: Final = 4
"""Sets of targets whose trees are kept; beyond that, that of the fewest steps is dropped."""
MAX_LAYOUTS: Final = 64
"""Layouts whose sums are kept by span; beyond that they are added to the nodes."""

NodeKey = tuple[int, RowKey]
"""A node's parent (an index, -1 for a root) and its row."""


@dataclass(slots=True)
class CallTree:
    """Nodes with parents first, and the time of each in nanoseconds over ``steps`` steps.

    The roots, ``model_ns`` (operations of the model in no name, by phase) and the unattributed time add up to
    ``step_ns``.
    """

    steps: int = 0
    step_ns: int = 0
    model_ns: Counter[Phase] = field(default_factory=Counter)
    keys: dict[NodeKey, int] = field(default_factory=dict)
    total_ns: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    _sums: dict[Layout, tuple[Nanoseconds, list[int]]] = field(default_factory=dict)

    @property
    def other_ns(self) -> int:
        """The unattributed time."""
        roots = sum(ns for (parent, _), ns in zip(self.keys, self.total_ns, strict=True) if parent < 0)
        return self.step_ns - roots - sum(self.model_ns.values())

    def add(self, frame: StepFrame) -> None:
        """Add one step."""
        self.steps += 1
        self.step_ns += frame.step_ns
        self.model_ns.update(frame.model_ns)
        known = self._sums.get(frame.layout)
        if known is None:
            if len(self._sums) >= MAX_LAYOUTS:
                self.flush()
            known = self._sums[frame.layout] = (np.zeros(len(frame.layout), dtype=np.int64), [0])
        total_ns, steps = known
        total_ns += frame.total_ns
        steps[0] += 1

    def flush(self) -> None:
        """Add the sums of all layouts to the nodes."""
        for layout, (total_ns, (steps,)) in self._sums.items():
            ids: list[int] = []
            for (parent, row), span in _places(layout):
                key = (ids[parent] if parent >= 0 else -1, row)
                index = self.keys.setdefault(key, len(self.keys))
                if index == len(self.total_ns):
                    self.total_ns.append(0)
                    self.calls.append(0)
                ids.append(index)
                for one in span:
                    self.total_ns[index] += int(total_ns[one])
                    self.calls[index] += layout.calls[one] * steps
        self._sums.clear()


class CallTrees:
    """The trees of a run: one for each set of targets, because parents and children must rest on the same steps."""

    def __init__(self) -> None:
        self._cuts: dict[int, CallTree] = {}

    def add(self, frame: StepFrame) -> None:
        """Add one step to the tree of its targets."""
        tree = self._cuts.get(frame.cut)
        if tree is None:
            if len(self._cuts) >= MAX_CUTS:
                del self._cuts[min(self._cuts, key=lambda cut: self._cuts[cut].steps)]
            tree = self._cuts[frame.cut] = CallTree()
        tree.add(frame)

    def shown(self) -> CallTree:
        """Return the tree with the most steps, of several the latest, as summaries do."""
        tree = max(reversed(self._cuts.values()), key=lambda one: one.steps, default=CallTree())
        tree.flush()
        return tree


@cached_by_layout
def _places(layout: Layout) -> list[tuple[NodeKey, list[int]]]:
    """Return the nodes of a layout with their outermost spans; parents are indices into the list."""
    places: dict[NodeKey, int] = {}
    spans: list[list[int]] = []
    of_span: dict[int, int] = {}
    parents: list[int] = []
    rows: list[RowKey] = []
    for span, key in enumerate(zip(layout.names, layout.phases, layout.lanes, strict=True)):
        row = RowKey(*key)
        if row.lane != TRAINING_LANE:
            continue
        above = of_span.get(layout.parents[span], -1)
        ancestor = above
        while ancestor >= 0 and rows[ancestor] != row:
            ancestor = parents[ancestor]
        if ancestor >= 0:  # a call inside a call of the same row is part of that call
            of_span[span] = ancestor
            continue
        index = places.setdefault((above, row), len(places))
        if index == len(spans):
            spans.append([])
            parents.append(above)
            rows.append(row)
        spans[index].append(span)
        of_span[span] = index
    return list(zip(places, spans, strict=True))
