"""Find the members of a group whose calls take much longer than those of the others, step after step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from .._stats.median import median
from .._targets import ModuleGroup, ModuleNode
from ..frame import TRAINING_LANE, Layout, Nanoseconds, Phase, StepFrame

MIN_BLOCKS: Final = 3
"""The least members of a group: of two that differ, neither is the usual one."""
UNLIKE_TIMES: Final = 2.0
"""A call of an unlike member takes this many times the median: equal modules vary by less, even on a busy machine."""
UNLIKE_SHARE: Final = 0.03
"""The part of a step that its excess over the median takes; a smaller one does not make the step slow."""
KEPT_FRAMES: Final = 8
"""The latest recorded steps that are compared."""
UNLIKE_FRAMES: Final = 6
"""Those of them in which it is unlike: a delay hits one member less often, and one in the others may hide it."""
MAX_UNLIKE: Final = 3
"""Members that are split off a group; where more differ, the group has no usual time, and its row says that best."""


def unlike_members(group: ModuleGroup, frames: Collection[StepFrame]) -> tuple[ModuleNode, ...]:
    """Return the members that are unlike the others in most of the frames; none where they are many."""
    if group.blocks < MIN_BLOCKS:
        return ()
    unlike = Counter(node for frame in frames for node in _unlike(group, frame))
    members = tuple(node for node in group.nodes if unlike[node] >= UNLIKE_FRAMES)
    return members if len(members) <= MAX_UNLIKE and 2 * len(members) < group.blocks else ()


def _unlike(group: ModuleGroup, frame: StepFrame) -> list[ModuleNode]:
    """Return the members that are unlike the others in one step; none where too few were called."""
    modules = _modules(frame.layout)
    present = [(node, modules.places[node.fqn]) for node in group.nodes if node.fqn in modules.places]
    present = [(node, at) for node, at in present if modules.calls[at]]
    if len(present) < MIN_BLOCKS:
        return []
    at = np.asarray([place for _, place in present])
    total = np.bincount(modules.of_span, frame.total_ns[modules.spans], len(modules.calls))[at]
    each = total / modules.calls[at]
    usual = float(median(each))
    is_unlike = (each >= UNLIKE_TIMES * usual) & (
        (each - usual) * modules.calls[at] >= UNLIKE_SHARE * max(frame.step_ns, 1)
    )
    return [node for (node, _), chosen in zip(present, is_unlike.tolist(), strict=True) if chosen and usual]


class _Modules(NamedTuple):
    """The modules of a layout by fqn: their forward calls, and the spans that add up to their time."""

    places: dict[str, int]
    calls: Nanoseconds
    spans: Nanoseconds
    of_span: Nanoseconds


@lru_cache(maxsize=16)
def _modules(layout: Layout) -> _Modules:
    places: dict[str, int] = {}
    calls: list[int] = []
    spans: list[int] = []
    of_span: list[int] = []
    for span, (fqn, phase, lane) in enumerate(zip(layout.fqns, layout.phases, layout.lanes, strict=True)):
        # A recompute lies inside the backward of its module, or of the module around it.
        if fqn is None or lane != TRAINING_LANE or not phase.traits.in_module or phase is Phase.RECOMPUTE:
            continue
        module = places.setdefault(fqn, len(places))
        if module == len(calls):
            calls.append(0)
        if phase is Phase.FORWARD:
            calls[module] += layout.calls[span]
        if not _is_inside_itself(layout, span):
            spans.append(span)
            of_span.append(module)
    return _Modules(places, *(np.asarray(column, dtype=np.int64) for column in (calls, spans, of_span)))


def _is_inside_itself(layout: Layout, span: int) -> bool:
    """Return whether the span lies in another of its module and phase, whose time includes it."""
    above = layout.parents[span]
    while above >= 0:
        if layout.fqns[above] == layout.fqns[span] and layout.phases[above] is layout.phases[span]:
            return True
        above = layout.parents[above]
    return False
