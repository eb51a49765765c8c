"""Gradient accumulation, counted from the marks of a step: micro-steps of one optimizer step."""

from __future__ import annotations

from collections.abc import Sequence

from .._capture.marks import codes as marks
from .._capture.marks.codes import Label
from ..frame import Phase


class MicroStepCounter:
    """Count the micro-steps on the training thread: the backward passes before one optimizer step.

    A second loss of the same forward is not a further micro-step: its pass runs the backward of a call that an earlier
    pass has run. A backward inside a backward is none. A closure suspends the optimizer's span: the pass of the first
    closure belongs to the passes before it (Lightning), those of later ones are evaluations of the optimizer (LBFGS).
    """

    def __init__(self, labels: Sequence[Label]) -> None:
        self._labels = labels
        self._forward_seen = False
        self._calls: set[int] = set()
        """The calls whose backward has run since the last optimizer step."""
        self._open_calls: set[int] = set()
        """The calls whose backward has started in the open pass."""
        self._open_passes = 0
        self._passes = 0
        self._before_closure = 0
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
        elif kind == marks.GRAPH_END:
            if self._open_passes == 1:
                self._end_pass()
            self._open_passes = max(self._open_passes - 1, 0)
        elif kind in (marks.ENTER, marks.LEAVE, marks.RESUME):
            label = self._labels[index]
            if label.phase is Phase.FORWARD and kind == marks.ENTER and not self._open_passes:
                self._forward_seen = True
            elif label.phase is Phase.OPTIMIZER and "/" not in label.name and kind != marks.ENTER:  # "/": clipping
                self._end_update(closure=kind == marks.RESUME)

    def _end_pass(self) -> None:
        """Count the outermost pass that has ended, unless it is a further one of the same forward."""
        further = not self._calls.isdisjoint(self._open_calls) if self._open_calls else not self._forward_seen
        if not further or self._most is None:
            self._passes += 1
            self._most = max(self._most or 0, self._passes)
        self._calls |= self._open_calls
        self._open_calls.clear()
        self._forward_seen = False

    def _end_update(self, *, closure: bool) -> None:
        """Begin to count again where the optimizer's span ends, or after its ``closure``."""
        if closure and self._most is not None:
            self._most = max(self._most, self._before_closure + self._passes)
        self._before_closure = 0 if closure else self._passes
        self._passes, self._forward_seen = 0, False
        self._calls.clear()
