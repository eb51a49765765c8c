"""The tree of a model with the selected modules: siblings that are alike share a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn
from torch.nn.parameter import is_lazy

from .._core.names import visible
from .._reports.text import cells, crop, elide, pad, wrap
from .._targets import ModuleNode, Selection, Target, walk

Shape = tuple[object, ...]


class TreeLine(NamedTuple):
    """A line of the tree: its label, class, the parameters of one such module, and the names selected there."""

    label: str
    class_name: str
    parameters: int
    selected: str


class _Tree:
    """Make the lines; shapes are computed once, children first."""

    def __init__(self, model: nn.Module, selection: Selection, depth: int | None, ascii_only: bool) -> None:
        self._nodes = walk(model)
        self._targets = {id(one.module): one for one in selection if one.shown}
        self._depth = depth
        self._corner, self._tee, self._pipe = ("`- ", "|- ", "|  ") if ascii_only else ("└─ ", "├─ ", "│  ")
        self._dots = "..." if ascii_only else "…"
        self._shapes: dict[int, Shape] = {}
        self._parameters: dict[int, int] = {}
        self._has_target: dict[int, bool] = {}
        for node in reversed(self._nodes):  # parents come before their children
            self._measure(node)

    def _measure(self, node: ModuleNode) -> None:
        children = [one for one in node.children if id(one) in self._shapes]
        target = self._targets.get(id(node.module))
        own = sum(0 if is_lazy(one) else one.numel() for one in node.inner._parameters.values() if one is not None)
        self._parameters[id(node)] = own + sum(self._parameters[id(one)] for one in children)
        self._has_target[id(node)] = target is not None or any(self._has_target[id(one)] for one in children)
        chosen = None if target is None else (target.rule, target.phases, target.memory)
        parts = tuple(self._shapes[id(one)] for one in children)
        self._shapes[id(node)] = (node.class_name, self._parameters[id(node)], chosen, hash(parts))

    def lines(self) -> Iterator[TreeLine]:
        """Yield all lines, the model first."""
        root = self._nodes[0]
        yield self._line(root.class_name, [root], class_name="")
        yield from self._below(root, "", 1)

    def _below(self, node: ModuleNode, indent: str, level: int) -> Iterator[TreeLine]:
        if self._depth is not None and level > self._depth:
            return
        if self._depth is None and not any(self._has_target[id(one)] for one in node.children) and level > 1:
            return
        groups = list(self._groups(node))
        for number, (label, members) in enumerate(groups):
            is_last = number == len(groups) - 1
            yield self._line(indent + (self._corner if is_last else self._tee) + label, members)
            yield from self._below(members[0], indent + ("   " if is_last else self._pipe), level + 1)

    def _groups(self, node: ModuleNode) -> Iterator[tuple[str, list[ModuleNode]]]:
        """Yield the children, with runs of children that are alike together."""
        run: list[tuple[str, ModuleNode]] = []
        for name, child in [*node.named_children(), ("", None)]:
            if run and (child is None or self._shapes.get(id(child)) != self._shapes.get(id(run[0][1]))):
                if len(run) >= 3:
                    label = f"{run[0][0]} {self._dots} {run[-1][0]} ({len(run)} x)"
                    yield label, [one for _, one in run]
                else:
                    yield from ((label, [one]) for label, one in run)
                run = []
            if child is not None and id(child) in self._shapes:
                run.append((name, child))

    def _line(self, label: str, members: list[ModuleNode], class_name: str | None = None) -> TreeLine:
        first = members[0]
        targets = [one for one in (self._targets.get(id(node.module)) for node in members) if one is not None]
        parameters = self._parameters[id(first)]
        shown = first.class_name if class_name is None else class_name
        return TreeLine(visible(label), visible(shown), parameters, self._selected(targets))

    def _selected(self, targets: list[Target]) -> str:
        if not targets:
            return ""
        names = list(dict.fromkeys(one.name for one in targets))
        text = names[0] if len(names) == 1 else f"{names[0]} {self._dots} {names[-1]}"
        return text + (", memory" if targets[0].memory else "")


def _count(parameters: int) -> str:
    """Return a number of parameters in at most six characters: ``640``, ``16.6k``, ``1.24B``."""
    powers = ("", "k", "M", "B", "T")
    if not parameters:
        return "-"
    size, power = float(parameters), 0
    while size >= 999.5 and power < len(powers) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.3g}{powers[power]}"


def render_model(
    model: nn.Module, selection: Selection, *, depth: int | None = None, width: int = 80, ascii_only: bool = False
) -> list[str]:
    """Return the tree, then how many modules are selected under how many names, then the notes."""
    weights_width = 8
    lines = list(_Tree(model, selection, depth, ascii_only).lines())
    label = min(max(cells(one.label) + 2 + cells(one.class_name) for one in lines), 48)
    room = max(width - label - weights_width - 4, 16)
    found = [pad("module", label) + f"{'weights':>{weights_width}}  selected as"]
    for one in lines:
        words = f"{one.label}  {one.class_name}" if one.class_name else one.label
        weights = _count(one.parameters)
        found.append(
            f"{pad(elide(words, label), label)}{weights:>{weights_width}}  {elide(one.selected, room)}".rstrip()
        )
    names = {one.name for one in selection if one.shown}
    count = sum(one.shown for one in selection)
    modules = f"{count} module" if count == 1 else f"{count} modules"
    found += ["", f"{modules} selected, under {len(names)} {'name' if len(names) == 1 else 'names'}"]
    for note in selection.notes:
        found += wrap("note", note, width)
    return [crop(line, width) for line in found]
