"""Gradient accumulation, counted from the marks of a step: micro-steps of one optimizer step."""

from __future__ import annotations

from collections.abc import Sequence

from .._capture.marks import codes as marks
from .._capture.marks.codes import Label
from ..frame import Phase


class MicroStepCounter:
    """Count the micro-steps on the training thread: a forward of an instrumented module, and its backward pass.

    A second loss of the same forward is not a further micro-step: its pass runs the backward of a call that an earlier
    pass has run. All forwards may come before all passes. A backward inside a backward is none. Passes in a closure,
    which suspends the optimizer's span, belong to the optimizer; those of its first closure are the last micro-step
    where others came before (Lightning).
    """

    def __init__(self, labels: Sequence[Label]) -> None:
        self._labels = labels
        self._forward_seen = False
        self._calls: set[int] = set()
        """The calls whose backward has run since the last optimizer step."""
        self._open_calls: set[int] = set()
        """The calls whose backward has started in the open pass."""
        self._open_passes = 0
        self._open_optimizers = 0
        self._since_optimizer = 0
        self._before_closure = 0
        """The micro-steps before the optimizer's step began, until its first closure has run."""
        self._most: int | None = None

    @property
    def result(self) -> int | None:
        """The most micro-steps before one optimizer step; None where there was no backward pass."""
        if self._open_passes:  # a pass that an exception ended, or that the step's end cut
            self._end_pass()
        return self._most

    def add(self, kind: int, index: int, ordinal: int) -> None:
        """Add the next mark."""
        if kind == marks.BACKWARD_START:
            self._open_calls.add(ordinal)
        elif kind == marks.GRAPH_BEGIN:
            self._open_passes += 1
            if self._open_passes == 1:
                self._open_calls.clear()
        elif kind == marks.GRAPH_END:
            self._open_passes = max(self._open_passes - 1, 0)
            if not self._open_passes:
                self._end_pass()
        elif kind == marks.RESUME:
            if self._labels[index].phase is Phase.OPTIMIZER and "/" not in self._labels[index].name:
                self._end_closure()
        elif kind in (marks.ENTER, marks.LEAVE):
            phase = self._labels[index].phase
            if phase is Phase.OPTIMIZER:
                self._add_optimizer(index, begins=kind == marks.ENTER)
            elif phase is Phase.FORWARD and kind == marks.ENTER and not self._open_passes:
                self._forward_seen = True

    def _end_pass(self) -> None:
        """Count the outermost pass that has ended, unless it is a further one of the same forward."""
        self._open_passes = 0
        if self._open_optimizers:
            return
        further = not self._calls.isdisjoint(self._open_calls) if self._open_calls else not self._forward_seen
        if not further or self._most is None:
            self._since_optimizer += 1
            self._most = max(self._most or 0, self._since_optimizer)
        self._calls |= self._open_calls
        self._open_calls.clear()
        self._forward_seen = False

    def _add_optimizer(self, index: int, *, begins: bool) -> None:
        if "/" in self._labels[index].name:  # clipping and zero_grad, around the update
            return
        self._open_optimizers = max(self._open_optimizers + (1 if begins else -1), 0)
        if begins:
            self._before_closure = self._since_optimizer
        else:
            self._restart()

    def _end_closure(self) -> None:
        """Count the passes since the optimizer's span was suspended, of its first closure with those before."""
        self._open_optimizers += 1
        if self._since_optimizer and self._most is not None:
            self._most = max(self._most, self._before_closure + self._since_optimizer)
        self._before_closure = 0
        self._restart()

    def _restart(self) -> None:
        self._since_optimizer, self._forward_seen = 0, False
        self._calls.clear()
