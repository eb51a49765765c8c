"""Track the autograd nodes behind the inputs and outputs of calls: the part of the hot path that inspects tensors."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from operator import itemgetter
from threading import local
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..marks.codes import MAX_MARKS
from .graph_search import GraphSearch
from .tensors import nodes_of

if TYPE_CHECKING:
    from ..marks._c import NodeMarks
    from ..recorder import Recorder

Gap = tuple[int, int]
"""A call before which a node was made that is not its input: the call's ordinal, and the number of its first node."""

_next_thread_number = itertools.count(1).__next__
_next_node_number = torch._C._autograd._get_sequence_nr


class _ThreadNumber(local):
    """A number for each thread that is never used again: the system reuses the identifiers of ended threads."""

    def __init__(self) -> None:
        self.value = _next_thread_number()


_thread_number = _ThreadNumber()


class CallTracker:
    """Have ``nodes`` mark the backward of calls.

    A node is known by its sequence number within its thread: a Python object of it would keep the graph alive.
    ``gaps`` holds open gaps.
    """

    def __init__(self, nodes: NodeMarks, recorder: Recorder) -> None:
        self.nodes = nodes
        self.gaps: list[Gap] = []
        self._recorder = recorder
        self._search = GraphSearch()

    def _key(self, number: int, thread: int) -> int:
        # Bits of a node's number in the key of one of another thread than the training thread.
        return number if thread == self._recorder.thread else number | _thread_number.value << 48

    def track_inputs(self, args: Any, kwargs: Any, ordinal: int, thread: int) -> None:
        """Have the nodes of a call's inputs mark the end of its backward, and note a gap if a newer node exists."""
        next_number, newest = _next_node_number(), -1
        for node in nodes_of((*args, *kwargs.values())):
            number = node._sequence_nr()
            newest = max(newest, number)
            self.nodes.track_input(self._key(number, thread), node, ordinal)
        is_gap = newest < next_number - 1 and thread == self._recorder.thread and next_number - 1 not in self.nodes
        if is_gap and len(self.gaps) < MAX_MARKS:
            self.gaps.append((ordinal, next_number))

    def track_outputs(self, output: Any, code: int, ordinal: int, thread: int) -> None:
        """Have the nodes of a call's outputs mark the begin of its backward, and find the nodes of inner gaps."""
        if output is None:
            return
        first = None
        for node in (output.grad_fn,) if type(output) is Tensor else nodes_of(output):
            if node is not None:
                first = first or node
                number = node._sequence_nr()
                if thread != self._recorder.thread:
                    number = self._key(number, thread)
                self.nodes.track_output(number, node, ordinal)
        if first is None and not isinstance(output, Tensor) and torch.is_grad_enabled():
            for node in nodes_of(output, attributes=True):
                self.nodes.track_output(self._key(node._sequence_nr(), thread), node, ordinal)
        gaps = self.gaps
        if gaps and gaps[-1][0] > ordinal and thread == self._recorder.thread:
            begin = bisect_right(gaps, ordinal, key=itemgetter(0))
            for gap in gaps[begin:] if first is not None else ():
                # The newest node made before the call runs after all nodes made since; often it has a prehook already.
                if gap[1] - 1 not in self.nodes:
                    node = self._search.find_node(first, code, gap[1])
                    if node is not None:
                        self.nodes.track_input(node._sequence_nr(), node, gap[0])
            del gaps[begin:]
