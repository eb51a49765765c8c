"""Gradient accumulation, read off a step's marks: how often forward and backward went round for one optimizer step."""

from __future__ import annotations

from collections.abc import Sequence

from .._capture import marks
from .._capture.marks import Label
from ..frame import Phase


class Rounds:
    """Count the rounds of the training thread: a forward of an instrumented module, then a backward pass.

    A second loss of the same forward is no further round, nor is a backward inside a backward. What an optimizer's own
    closure runs belongs to the optimizer.
    """

    def __init__(self, labels: Sequence[Label]) -> None:
        self._labels = labels
        self._forward = False
        self._passes = 0
        self._optimizing = 0
        self._open = 0
        self._most: int | None = None

    @property
    def micro_steps(self) -> int | None:
        """The most rounds before one optimizer step; None where no backward pass was seen."""
        return self._most

    def see(self, kind: int, index: int) -> None:
        """Take the next mark."""
        if kind == marks.GRAPH_BEGIN:
            self._begin_pass()
        elif kind == marks.GRAPH_END:
            self._passes = max(self._passes - 1, 0)
        elif kind in (marks.ENTER, marks.LEAVE):
            phase = self._labels[index].phase
            if phase is Phase.OPTIMIZER:
                self._optimize(kind == marks.ENTER, index)
            elif phase is Phase.FORWARD and kind == marks.ENTER and not self._passes:
                self._forward = True

    def _begin_pass(self) -> None:
        self._passes += 1
        if self._passes > 1 or self._optimizing:
            return
        if self._forward or self._most is None:
            self._open += 1
            self._most = max(self._most or 0, self._open)
        self._forward = False

    def _optimize(self, enters: bool, index: int) -> None:
        if "/" in self._labels[index].name:  # clipping and zero_grad lie around the update; they are none
            return
        self._optimizing = max(self._optimizing + (1 if enters else -1), 0)
        if not enters:
            self._open, self._forward = 0, False
