"""Which modules does a kernel of inductor work for? Read from the nodes of the graph that it was generated from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from ...base.frame import Phase

Path = tuple[str, ...]
"""A variable of the compiled function, as ``L['self']``, and the attributes that lead from there to a module.

``fc@1`` is ``fc``'s second call. The function itself, outside all modules, has the path ``("",)``.
"""


class Kernel(NamedTuple):
    """One call of a kernel in generated code: what it calls, the paths of the modules that its outputs belong to."""

    call: str
    paths: tuple[Path, ...]
    phase: Phase = Phase.FORWARD
    is_layout: bool = False
    """Whether it only copies weights, or inputs, into another layout."""
    is_unnamed: bool = False
    """Whether the modules are not known for certain."""


class NodeModules:
    """The modules that the nodes of one graph belong to.

    ``lines`` has, by the lines of the program that a node stands for, the modules in which these lines ran.
    """

    def __init__(self, nodes: Iterable[Any], lines: Mapping[str, Set[Path]], *, is_backward: bool) -> None:
        self._order = {node: at for at, node in enumerate(nodes)}
        self._lines = lines
        self._is_backward = is_backward

    def kernel(self, call: str, buffers: Sequence[Any]) -> Kernel:
        """Return the kernel that computes these outputs of inductor's IR."""
        origins = [self._origin(buffer) for buffer in buffers]
        return self.kernel_of_nodes(call, [node for node in origins if node is not None])

    def kernel_of_nodes(self, call: str, nodes: Sequence[Any] | None) -> Kernel:
        """Return the kernel whose outputs are the values of these nodes; None stands for nodes that are not known."""
        if nodes is None:
            return Kernel(call, (), Phase.BACKWARD if self._is_backward else Phase.FORWARD, is_unnamed=True)
        is_layout = bool(nodes) and all(node.op in ("placeholder", "get_attr") for node in nodes)
        paths = dict.fromkeys(path for path in map(self.path, nodes) if path is not None)
        return Kernel(call, tuple(paths), self._phase(nodes), is_layout)

    def _origin(self, buffer: Any) -> Any:
        """Return the node whose value the buffer is; else the last of those that it was computed from."""
        node = getattr(buffer, "origin_node", None)
        if node is not None:
            return node
        # The last in the order of the graph: the first ones are what the buffer's own operation took in.
        return max(getattr(buffer, "origins", ()), key=lambda one: self._order.get(one, -1), default=None)

    def _phase(self, nodes: Sequence[Any]) -> Phase:
        """Return the phase: a forward node in a backward graph is one that the partitioner has computed again."""
        if not self._is_backward:
            return Phase.FORWARD
        tags = {node.meta.get("partitioner_tag") for node in nodes}
        return Phase.RECOMPUTE if tags == {"is_forward"} else Phase.BACKWARD

    def path(self, node: Any) -> Path | None:
        """Return the path of the module that a node belongs to.

        A node that torch's passes made has none of its own, as the sum of two gradients, or attention that was found in
        several operations. It belongs to the module of its line; where several modules share the line, as the blocks in
        a loop, to that of them near which it lies; else to the module of its nearest inputs, or of its nearest users.
        """
        path = self._own(node)
        if path is not None:
            return path
        lines = self._lines.get(node.meta.get("stack_trace", ""), frozenset[Path]())
        near = [*self._near(node, lambda one: one.all_input_nodes), *self._near(node, lambda one: one.users)]
        found = (path[: len(line)] for path in near for line in lines if without_calls(path)[: len(line)] == line)
        return next(found, next(iter(lines if len(lines) == 1 else near), None))

    def _near(self, node: Any, neighbours: Callable[[Any], Iterable[Any]]) -> Iterator[Path]:
        """Yield the paths of the nodes around a node, the nearest first; of those equally near, the last computed."""
        seen, level = {node}, [node]
        while level:
            found = {one for each in level for one in neighbours(each)} - seen
            level = sorted(found, key=lambda one: -self._order.get(one, -1))
            seen.update(level)
            yield from (path for path in map(self._own, level) if path is not None)

    def _own(self, node: Any) -> Path | None:
        return None if node.op == "placeholder" else module_of(node)


def module_of(node: Any) -> Path | None:
    """Return the path of a node's module; None for a node that torch's passes made."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if stack:
        found = {split(path): str(key).partition("@") for key, (path, _) in stack.items()}
        paths = list(found)
        # A module outside the model, as a global activation, works for the module that calls it.
        root, *names = path = next(one for one in reversed(paths) if one[0] == paths[0][0])
        ends = (found.get(path[: at + 2], ("", "", "")) for at in range(len(names)))
        return root, *(name + "".join(end[1:]) for name, end in zip(names, ends, strict=True))
    # An operation in the compiled function itself has a source, and is in no module inside it.
    has_source = node.meta.get("source_fn_stack") or node.meta.get("fwd_source_fn_stack")
    return ("",) if has_source else None


def without_calls(path: Path) -> Path:
    """Return the attributes of a path alone."""
    return tuple(name.partition("@")[0] for name in path)


def split(path: str) -> Path:
    """Return the path of a text such as ``L['self'].blocks.0``.

    It begins at a variable, or at an element of one: ``L['args'][0].blocks``, where a decorator wraps the forward.
    """
    found = re.match(r"[^]]*](\[\d+])*", path)
    root = found[0] if found else ""
    return root, *(name for name in re.findall(r"\w+", path[len(root) :]) if name != "_modules")


def outputs_of(nodes: Sequence[Any]) -> list[Any]:
    """Return the buffers that the scheduled nodes of one kernel leave to others; all of them where that is unknown."""
    nodes = [node for node in nodes if getattr(node, "node", None) is not None]  # without markers of reductions
    inside = {node.get_name() for node in nodes}
    kept = [
        node.node
        for node in nodes
        if any(user.node.get_name() not in inside for out in node.get_outputs() for user in out.users)
    ]
    return kept or [node.node for node in nodes]
