"""Gradient accumulation, counted from the marks of a step: micro-steps of one optimizer step."""

from __future__ import annotations

from collections.abc import Sequence

from .._capture import marks
from .._capture.marks import Label
from ..frame import Phase


class MicroStepCounter:
    """Count the micro-steps on the training thread: a forward of an instrumented module, then a backward pass.

    A second loss of the same forward is not a further micro-step, and neither is a backward inside a backward. The
    passes in an optimizer's closure belong to the optimizer.
    """

    def __init__(self, labels: Sequence[Label]) -> None:
        self._labels = labels
        self._forward_seen = False
        self._open_passes = 0
        self._open_optimizers = 0
        self._since_optimizer = 0
        self._most: int | None = None

    @property
    def result(self) -> int | None:
        """The most micro-steps before one optimizer step; None where there was no backward pass."""
        return self._most

    def add(self, kind: int, index: int) -> None:
        """Add the next mark."""
        if kind == marks.GRAPH_BEGIN:
            self._begin_pass()
        elif kind == marks.GRAPH_END:
            self._open_passes = max(self._open_passes - 1, 0)
        elif kind in (marks.ENTER, marks.LEAVE):
            phase = self._labels[index].phase
            if phase is Phase.OPTIMIZER:
                self._add_optimizer(index, begins=kind == marks.ENTER)
            elif phase is Phase.FORWARD and kind == marks.ENTER and not self._open_passes:
                self._forward_seen = True

    def _begin_pass(self) -> None:
        self._open_passes += 1
        if self._open_passes > 1 or self._open_optimizers:
            return
        if self._forward_seen or self._most is None:
            self._since_optimizer += 1
            self._most = max(self._most or 0, self._since_optimizer)
        self._forward_seen = False

    def _add_optimizer(self, index: int, *, begins: bool) -> None:
        if "/" in self._labels[index].name:  # clipping and zero_grad, around the update
            return
        self._open_optimizers = max(self._open_optimizers + (1 if begins else -1), 0)
        if not begins:
            self._since_optimizer, self._forward_seen = 0, False
