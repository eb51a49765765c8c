"""Find the autograd node that marks the end of a call's backward where none of the call's inputs does.

In ``a = op(x); b = module(x)`` the operator's node is newer than the module's input, so it runs between the module's
backward and the node of that input. The operator's node is reachable from the output of the module around both. The
path to it is the same at each step: it is searched once and then followed.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple


class EdgePath(NamedTuple):
    """The edge to take at each node, and how many nodes before the call the last node was made; no edges: no path."""

    edges: tuple[int, ...] = ()
    made_before: int = 0

    def follow(self, node: Any, made: int) -> Any:
        """Return the node at the end of the path from ``node``; None where this graph has another one there."""
        for edge in self.edges:
            next_nodes = node.next_functions
            node = next_nodes[edge][0] if edge < len(next_nodes) else None
            if node is None:
                return None
        return node if made - node._sequence_nr() == self.made_before else None


class GraphSearch:
    """Remember the paths from modules' outputs to the nodes that end the backward of the modules inside."""

    def __init__(self) -> None:
        self._paths: dict[tuple[int, int], EdgePath] = {}
        self._searches = 0

    def find_node(self, output: Any, code: int, made: int) -> Any:
        """Return the newest node made before ``made`` that ``output``, an output node of the module ``code``, needs.

        None where the node is too far away to be found.
        """
        key = code, output._sequence_nr() - made
        path = self._paths.get(key)
        if path is not None:
            found = path.follow(output, made) if path.edges else None
            if found is not None or not path.edges:
                return found
        if self._searches >= 4096:
            return None
        self._searches += 1
        node, self._paths[key] = _search(output, made)
        return node


def _search(output: Any, made: int) -> tuple[Any, EdgePath]:
    """Return the newest node before ``made``, and the shortest path to it."""
    # The sequence number of a leaf's `AccumulateGrad`: the engine runs it before everything else.
    leaf = (1 << 64) - 1
    pending: deque[tuple[Any, tuple[int, ...]]] = deque([(output, ())])
    visited = {output._sequence_nr()}
    newest, found, path = -1, None, EdgePath()
    while pending:
        current, edges = pending.popleft()
        for edge, (node, _) in enumerate(current.next_functions):
            number = leaf if node is None else node._sequence_nr()
            if number == leaf or number in visited:
                continue
            visited.add(number)
            if number >= made:
                pending.append((node, (*edges, edge)))
            elif number > newest:
                newest, found, path = number, node, EdgePath((*edges, edge), made - number)
        if len(visited) > 512:
            return None, EdgePath()
    return found, path
