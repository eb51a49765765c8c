"""Self times of sets of spans, as signed sums of total times; the terms are found once a layout.

The self time of a span is its total minus the totals of its children. Summed over a set of spans, most terms cancel, so
the self time of a phase or a name takes a few additions, and that of all of them one numpy call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..frame import TRAINING_LANE, Layout, Nanoseconds, Phase, StepFrame
from .layout_cache import cached_by_layout

Terms = Sequence[tuple[int, int]]
"""Spans with their signs."""


class SignedSums:
    """Several signed sums over one layout's spans, computed together."""

    __slots__ = ("_count", "_index", "_sign", "_starts")

    def __init__(self, sums: Sequence[Terms]) -> None:
        self._count = len(sums)
        filled = [terms or ((0, 0),) for terms in sums]  # reduceat has no empty runs
        self._index = np.asarray([span for terms in filled for span, _ in terms], dtype=np.int64)
        self._sign = np.asarray([sign for terms in filled for _, sign in terms], dtype=np.int64)
        self._starts = np.cumsum([0, *(len(terms) for terms in filled[:-1])])

    def of(self, total_ns: Nanoseconds) -> Nanoseconds:
        """Return the sums for one step's spans. The last axis runs over them; steps may be stacked before it."""
        if not total_ns.shape[-1] or not len(self._index):
            return np.zeros((*total_ns.shape[:-1], self._count), dtype=np.int64)
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


class PhaseSums:
    """The self time of each phase, of steps that share a layout and the phases of the model's own time."""

    __slots__ = ("_model", "_sums", "phases")

    def __init__(self, layout: Layout, model: Sequence[Phase]) -> None:
        found = dict.fromkeys([*(phase for phase, _ in layout.phase_groups), *model])
        training = [span for span, lane in enumerate(layout.lanes) if lane == TRAINING_LANE]
        self.phases = (*found, Phase.OTHER)
        self._sums = SignedSums([self_time_terms(layout, training, phase) for phase in found])
        self._model = tuple((self.phases.index(phase), phase) for phase in model)

    def of(self, frames: Sequence[StepFrame]) -> list[list[int]]:
        """Return ``phase_ns()`` of each frame as a list, in the order of ``phases``."""
        sums_ns: list[list[int]] = self._sums.of(np.array([frame.total_ns for frame in frames])).tolist()
        for own_ns, frame in zip(sums_ns, frames, strict=True):
            for at, phase in self._model:
                own_ns[at] += frame.model_ns[phase]
            own_ns.append(frame.step_ns - sum(own_ns))
        return sums_ns


@cached_by_layout
def phase_sums(layout: Layout, model: tuple[Phase, ...]) -> PhaseSums:
    """Return the sums of a layout; ``model`` are the keys of ``model_ns``."""
    return PhaseSums(layout, model)
