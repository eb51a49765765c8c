"""Watch the autograd nodes behind what calls take and return: the half of the hot path that looks at tensors."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..marks import UNTIMED_HIDDEN, UNTIMED_LEAF
from ..recorder import Recorder
from .tensors import nodes_of, search

Hook = Callable[..., None]
Pair = tuple[Hook, Hook]
"""What is called before a module's forward and after it."""
Gap = tuple[int, int]
"""A call before which something was made that is not its input: its ordinal, and the number of its first node."""


class NodeWatch(NamedTuple):
    """What has one autograd node mark what it means to a call; ``known`` is what those of this step mean, ``mark`` the
    hook that they are given."""

    input: Callable[[Any, int, int], int]
    output: Callable[[Any, int, int], None]
    gap: Callable[[Any, int, Gap], None]
    known: dict[Any, list[int]]
    mark: Callable[[list[int], Any], None]


class Watch(NamedTuple):
    """What watches the nodes behind whatever a call takes and returns, and those that follow on calls inside.

    ``inputs`` returns the number of the newest node among them, -1 where there is none. ``gaps`` are the open ones.
    """

    nodes: NodeWatch
    inputs: Callable[..., int]
    outputs: Hook
    inside: Hook
    gaps: list[Gap]


def tensor_hooks(recorder: Recorder, nodes: NodeWatch, gaps: list[Gap]) -> Watch:
    """Return what watches by these nodes."""
    watch_input, watch_output, watch_gap, *_ = nodes

    def watch_inputs(args: Any, kwargs: Any, ordinal: int, thread: int) -> int:
        newest = -1
        for value in args:
            if isinstance(value, Tensor):
                node = value.grad_fn
                if node is not None and (number := watch_input(node, ordinal, thread)) > newest:
                    newest = number
            elif value is not None:
                for node in nodes_of(value):
                    newest = max(newest, watch_input(node, ordinal, thread))
        if kwargs:
            for node in nodes_of(kwargs):
                newest = max(newest, watch_input(node, ordinal, thread))
        return newest

    def watch_gaps(output: Any, code: int, ordinal: int) -> None:
        inside = bisect_right(gaps, ordinal, key=itemgetter(0))
        node = output.grad_fn if isinstance(output, Tensor) else next(nodes_of(output), None)
        if node is not None:
            for gap in gaps[inside:]:
                watch_gap(node, code, gap)
        del gaps[inside:]

    def watch_outputs(output: Any, ordinal: int, thread: int) -> None:
        if isinstance(output, Tensor):
            node = output.grad_fn
            if node is not None:
                watch_output(node, ordinal, thread)
            elif output.requires_grad:
                look_closer(output, ordinal, thread)
        elif output is not None:
            node = None
            for node in nodes_of(output):
                watch_output(node, ordinal, thread)
            if node is None:
                look_closer(output, ordinal, thread)

    def look_closer(output: Any, ordinal: int, thread: int) -> None:
        if torch.is_grad_enabled():  # or nothing will ever ask for a backward
            found = search(output)
            for node in found.nodes:
                watch_output(node, ordinal, thread)
            if not found.nodes and (found.leaf or not found.whole):
                recorder.count_untimed(UNTIMED_LEAF if found.leaf else UNTIMED_HIDDEN)

    return Watch(nodes, watch_inputs, watch_outputs, watch_gaps, gaps)
