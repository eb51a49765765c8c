"""Track the autograd nodes behind the inputs and outputs of calls: the part of the hot path that inspects tensors."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..marks.codes import UNTIMED_HIDDEN, UNTIMED_LEAF
from ..marks.state import PythonNodeMarks
from ..recorder import Recorder
from .call_sites import CallEntry
from .graph_search import GraphSearch
from .hook_owner import HookOwner, handle_owner_failure
from .tensors import nodes_of, search_attributes

Hook = Callable[..., Any]


class CallHooks(NamedTuple):
    """The functions called before and after calls of a module, and the context of their usual case in C, or None.

    ``before(owner, module, args, kwargs)`` returns ``call``, the last argument of
    ``after(owner, module, args, kwargs, output, call)``: a call's ordinal, or 0 where it is not tracked.
    """

    before: Hook
    after: Hook
    context: Any = None

    def entry(self, owner: HookOwner) -> Any:
        """Return the entry that calls them for this owner."""
        return CallEntry(owner, self.before, self.after, self.context, handle_owner_failure, owner.code)


Gap = tuple[int, int]
"""A call before which a node was made that is not its input: the call's ordinal, and the number of its first node."""


class CallTracker(NamedTuple):
    """Functions that track the nodes behind a call's inputs, its outputs, and the gaps inside it.

    ``nodes`` may be the twin in C. ``track_inputs`` returns the number of the newest node among them, -1 without one;
    ``gaps`` holds open gaps.
    """

    nodes: PythonNodeMarks
    track_inputs: Callable[..., int]
    track_outputs: Callable[[Any, int, int], None]
    track_inner_gaps: Callable[[Any, int, int], None]
    gaps: list[Gap]


def make_call_tracker(
    recorder: Recorder,
    nodes: PythonNodeMarks,
    gaps: list[Gap],
    search: GraphSearch,
    key_elsewhere: Callable[[int], int],
) -> CallTracker:
    """Return a tracker of calls that has ``nodes`` mark the backward. Called on the thread that makes the calls.

    Within a thread a node is known by its sequence number (a Python object of it would keep the graph alive);
    ``key_elsewhere`` makes a key of the number of a node of another thread.
    """
    home_thread = get_ident()

    def track_input(node: Any, ordinal: int, thread: int) -> int:
        number: int = node._sequence_nr()
        nodes.track_input(number if thread == home_thread else key_elsewhere(number), node, ordinal)
        return number

    def track_output(node: Any, ordinal: int, thread: int) -> None:
        number = node._sequence_nr()
        nodes.track_output(number if thread == home_thread else key_elsewhere(number), node, ordinal)

    def track_gap(output: Any, code: int, gap: Gap) -> None:
        # The newest node made before the call runs after all nodes made since; often it has a prehook already.
        ordinal, next_number = gap
        if next_number - 1 not in nodes:
            node = search.find_node(output, code, next_number, nodes)
            if node is not None:
                track_input(node, ordinal, home_thread)

    def track_inputs(args: Any, kwargs: Any, ordinal: int, thread: int) -> int:
        newest = -1
        for value in args:
            if isinstance(value, Tensor):
                node = value.grad_fn
                if node is not None and (number := track_input(node, ordinal, thread)) > newest:
                    newest = number
            elif value is not None:
                for node in nodes_of(value):
                    newest = max(newest, track_input(node, ordinal, thread))
        if kwargs:
            for node in nodes_of(kwargs):
                newest = max(newest, track_input(node, ordinal, thread))
        return newest

    def track_inner_gaps(output: Any, code: int, ordinal: int) -> None:
        first = bisect_right(gaps, ordinal, key=itemgetter(0))
        node = output.grad_fn if isinstance(output, Tensor) else next(nodes_of(output), None)
        if node is not None:
            for gap in gaps[first:]:
                track_gap(node, code, gap)
        del gaps[first:]

    def track_outputs(output: Any, ordinal: int, thread: int) -> None:
        if isinstance(output, Tensor):
            node = output.grad_fn
            if node is not None:
                track_output(node, ordinal, thread)
            elif output.requires_grad:
                search_output(output, ordinal, thread)
        elif output is not None:
            node = None
            for node in nodes_of(output):
                track_output(node, ordinal, thread)
            if node is None:
                search_output(output, ordinal, thread)

    def search_output(output: Any, ordinal: int, thread: int) -> None:
        if torch.is_grad_enabled():  # otherwise no backward pass will reach the output
            found = search_attributes(output)
            for node in found.nodes:
                track_output(node, ordinal, thread)
            if not found.nodes and (found.leaf or not found.complete):
                recorder.count_untimed(UNTIMED_LEAF if found.leaf else UNTIMED_HIDDEN)

    return CallTracker(nodes, track_inputs, track_outputs, track_inner_gaps, gaps)
