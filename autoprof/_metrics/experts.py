"""``ExpertMeter``: the observer that adds up tokens and time of each expert of a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .._resolve import RawStep
from .._resolve.observer import Observer
from ..probes.experts import ExpertCounts
from ..summary import ExpertBlock, Summary


class ExpertMeter(Observer):
    """Follow the experts of a run; free of cost for a model without experts."""

    provides = "table of experts"

    def __init__(self, blocks: Sequence[ExpertCounts]) -> None:
        self._blocks = tuple(blocks)
        self._totals = [ExpertCounts(one.name, len(one.tokens), timed=one.ns is not None) for one in blocks]
        self._steps = 0

    def step(self, raw: RawStep) -> RawStep:
        """Add the step's counts, unless it is a warm-up step."""
        if self._blocks:
            taken = [block.take() for block in self._blocks]
            if not raw.warmup:
                self._steps += 1
                for total, one in zip(self._totals, taken, strict=True):
                    _add(total, one)
        return raw

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the experts that took tokens."""
        blocks = tuple(
            ExpertBlock(one.name, self._steps, tuple(one.tokens), None if one.ns is None else tuple(one.ns))
            for one in self._totals
            if sum(one.tokens)
        )
        return replace(summary, experts=blocks) if blocks else summary


def _add(total: ExpertCounts, one: ExpertCounts) -> None:
    total.calls += one.calls
    total.tokens = [a + b for a, b in zip(total.tokens, one.tokens, strict=True)]
    if total.ns is not None and one.ns is not None:
        total.ns = [a + b for a, b in zip(total.ns, one.ns, strict=True)]
