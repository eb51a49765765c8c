"""Find the node that runs next when a call's backward is over, where no tensor at hand leads there.

In ``a = op(x); b = module(x)`` the operator's node is newer than the module's input, so it runs between the module's
backward and whatever marks its end. The node hangs on what the two become: on the output of the module around them.
The way there is the same at each step, so it is sought once and then followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Any, Final, NamedTuple

NODES: Final = 512
"""Nodes looked at to find a way."""
BETWEEN: Final = 64
"""Nodes looked at to see whether what lies between costs anything."""
WAYS: Final = 4096
"""Ways remembered; and ways that turned out to lead elsewhere, and were sought anew."""
LEAF: Final = (1 << 64) - 1
"""The sequence number of a leaf's ``AccumulateGrad``: the engine runs it before everything else."""
FREE: Final = frozenset(
    f"{name}Backward0"
    for name in ("View", "UnsafeView", "ReshapeAlias", "T", "Transpose", "Permute", "Squeeze", "Unsqueeze", "Alias")
)
"""Nodes whose backward is a view: a few microseconds of the host, which are not worth a mark."""


class Way(NamedTuple):
    """Which edge to take at each node, and how far before the call the last one was made; no edges: not worth it."""

    edges: tuple[int, ...] = ()
    before: int = 0


class Routes:
    """The ways from modules' outputs to the nodes that follow on the backward of modules inside."""

    def __init__(self) -> None:
        self._ways: dict[tuple[int, int], Way] = {}
        self._sought = 0

    def follow(self, output: Any, code: int, made: int, marked: Container[int]) -> Any:
        """Return the newest node made before ``made`` that the node ``output`` of the module ``code`` depends on.

        None where that node marks already (its number is in ``marked``), where nothing between it and the next one that
        marks takes time, and where it is too far to seek.
        """
        key = code, output._sequence_nr() - made
        way = self._ways.get(key)
        if way is not None:
            if not way.edges:
                return None
            node = output
            for edge in way.edges:
                further = node.next_functions
                node = further[edge][0] if edge < len(further) else None
                if node is None:
                    break
            else:
                if made - node._sequence_nr() == way.before:
                    return node
        if self._sought >= WAYS:
            return None
        self._sought += 1
        node, way = _seek(output, made)
        if node is None or not _costs(node, marked):
            node, way = None, Way()
        self._ways[key] = way
        return node


def _seek(output: Any, made: int) -> tuple[Any, Way]:
    """Return the newest node before ``made``, and the shortest way there."""
    left: deque[tuple[Any, tuple[int, ...]]] = deque([(output, ())])
    seen = {output._sequence_nr()}
    newest, found, way = -1, None, Way()
    while left:
        one, edges = left.popleft()
        for edge, (further, _) in enumerate(one.next_functions):
            number = LEAF if further is None else further._sequence_nr()
            if number == LEAF or number in seen:
                continue
            seen.add(number)
            if number >= made:
                left.append((further, (*edges, edge)))
            elif number > newest:
                newest, found, way = number, further, Way((*edges, edge), made - number)
        if len(seen) > NODES:
            return None, Way()
    return found, way


def _costs(node: Any, marked: Container[int]) -> bool:
    """Say whether a node that is no view lies between ``node``, itself included, and those that mark."""
    left, seen = [node], set[int]()
    while left and len(seen) < BETWEEN:
        one = left.pop()
        number = one._sequence_nr()
        if number == LEAF or number in marked or number in seen:
            continue
        if one.name() not in FREE:
            return True
        seen.add(number)
        left += [further for further, _ in one.next_functions if further is not None]
    return False
