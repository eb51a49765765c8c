"""Find the autograd node that marks the end of a call's backward where none of the call's inputs does.

In ``a = op(x); b = module(x)`` the operator's node is newer than the module's input, so it runs between the module's
backward and the node of that input. The operator's node is reachable from the output of the module around both. The
path to it is the same at each step: it is searched once and then followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Any, Final, NamedTuple

SEARCH_NODES: Final = 512
"""Nodes visited in the search of a path."""
COST_NODES: Final = 64
"""Nodes visited to see whether the backward between two marks takes any time."""
MAX_PATHS: Final = 4096
"""Paths remembered, and searches in one session."""
LEAF: Final = (1 << 64) - 1
"""The sequence number of a leaf's ``AccumulateGrad``: the engine runs it before everything else."""
VIEWS: Final = frozenset(
    f"{name}Backward0"
    for name in ("View", "UnsafeView", "ReshapeAlias", "T", "Transpose", "Permute", "Squeeze", "Unsqueeze", "Alias")
)
"""Nodes whose backward is a view: a few microseconds of host time, not worth a mark."""


class EdgePath(NamedTuple):
    """The edge to take at each node, and how many nodes before the call the last node was made.

    No edges: no mark is worth making.
    """

    edges: tuple[int, ...] = ()
    made_before: int = 0


class GraphSearch:
    """Remember the paths from modules' outputs to the nodes that end the backward of the modules inside."""

    def __init__(self) -> None:
        self._paths: dict[tuple[int, int], EdgePath] = {}
        self._searches = 0

    def find_node(self, output: Any, code: int, made: int, marked: Container[int]) -> Any:
        """Return the newest node made before ``made`` that ``output``, an output node of the module ``code``, needs.

        None where the mark would add nothing: the node has one (its number is in ``marked``), or no node between it
        and the next marked one takes time. None also where the node is too far away to be found.
        """
        key = code, output._sequence_nr() - made
        path = self._paths.get(key)
        if path is not None:
            if not path.edges:
                return None
            node = output
            for edge in path.edges:
                next_nodes = node.next_functions
                node = next_nodes[edge][0] if edge < len(next_nodes) else None
                if node is None:
                    break
            else:
                if made - node._sequence_nr() == path.made_before:
                    return node
        if self._searches >= MAX_PATHS:
            return None
        self._searches += 1
        node, path = _search(output, made)
        if node is None or not _takes_time(node, marked):
            node, path = None, EdgePath()
        self._paths[key] = path
        return node


def _search(output: Any, made: int) -> tuple[Any, EdgePath]:
    """Return the newest node before ``made``, and the shortest path to it."""
    pending: deque[tuple[Any, tuple[int, ...]]] = deque([(output, ())])
    visited = {output._sequence_nr()}
    newest, found, path = -1, None, EdgePath()
    while pending:
        current, edges = pending.popleft()
        for edge, (node, _) in enumerate(current.next_functions):
            number = LEAF if node is None else node._sequence_nr()
            if number == LEAF or number in visited:
                continue
            visited.add(number)
            if number >= made:
                pending.append((node, (*edges, edge)))
            elif number > newest:
                newest, found, path = number, node, EdgePath((*edges, edge), made - number)
        if len(visited) > SEARCH_NODES:
            return None, EdgePath()
    return found, path


def _takes_time(node: Any, marked: Container[int]) -> bool:
    """Return whether any node from ``node`` (inclusive) to the marked ones is more than a view."""
    pending, visited = [node], set[int]()
    while pending and len(visited) < COST_NODES:
        current = pending.pop()
        number = current._sequence_nr()
        if number == LEAF or number in marked or number in visited:
            continue
        if type(current).__name__ not in VIEWS:  # not name(): a Function may have an attribute of this name
            return True
        visited.add(number)
        pending += [following for following, _ in current.next_functions if following is not None]
    return False
