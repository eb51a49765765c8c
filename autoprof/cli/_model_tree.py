"""The tree of a model with the selected modules: blocks that are alike share a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn
from torch.nn.parameter import is_lazy

from .._core.names import visible
from .._core.units import count
from .._reports.text import cells, crop, elide, pad, safe, wrap
from .._targets import ModuleGroup, Selection, Target, group_tree


class TreeLine(NamedTuple):
    """A line of the tree: its label and class, the parameters of one such module, and the names selected there."""

    label: str
    parameters: int
    selected: str


class _Tree:
    def __init__(self, model: nn.Module, selection: Selection, depth: int | None) -> None:
        self._root = group_tree(model)
        self._targets = {id(one.module): one for one in selection if one.shown}
        self._depth = depth

    def lines(self) -> Iterator[TreeLine]:
        """Yield all lines, the model first."""
        yield self._line(self._root.class_name, self._root)
        yield from self._below(self._root, "", 1)

    def _below(self, group: ModuleGroup, prefix: str, level: int) -> Iterator[TreeLine]:
        """Yield the lines inside a group, as deep as asked for, or as modules are selected; one level at least."""
        is_open = level == 1 or any(self._found(inside) for child in group.children for inside in child.below())
        if level > self._depth if self._depth is not None else not is_open:
            return
        for child in group.children:
            label = f"{'  ' * level}{child.name.removeprefix(prefix)}  {child.class_name}"
            yield self._line(label + (f" ({child.blocks} x)" if child.blocks > 1 else ""), child)
            yield from self._below(child, f"{child.name}/", level + 1)

    def _found(self, group: ModuleGroup) -> list[Target]:
        return [self._targets[id(node.module)] for node in group.nodes if id(node.module) in self._targets]

    def _line(self, label: str, group: ModuleGroup) -> TreeLine:
        parameters = sum(0 if is_lazy(one) else one.numel() for one in group.nodes[0].inner.parameters())
        targets = self._found(group)
        if not targets:
            return TreeLine(visible(label), parameters, "")
        names = list(dict.fromkeys(one.name for one in targets))
        selected = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        selected += f" ({len(targets)} of {group.blocks})" if len(targets) < group.blocks else ""
        return TreeLine(visible(label), parameters, selected + (", memory" if targets[0].memory else ""))


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
    model: nn.Module, selection: Selection, *, depth: int | None = None, width: int = 80, encoding: str = "utf-8"
) -> list[str]:
    """Return the tree, then how many modules are selected under how many names, then the notes."""
    weights_width = 8
    lines = list(_Tree(model, selection, depth).lines())
    label = min(max(cells(one.label) for one in lines), 48)
    room = max(width - label - weights_width - 4, 16)
    found = [pad("module", label) + f"{'weights':>{weights_width}}  selected as"]
    for one in lines:
        start = pad(elide(one.label, label), label) + f"{_count(one.parameters):>{weights_width}}"
        found.append(f"{start}  {elide(one.selected, room)}".rstrip())
    targets = [one for one in selection if one.shown]
    names = {one.name for one in targets}
    found += ["", f"{count(len(targets), 'module')} selected, under {count(len(names), 'name')}"]
    for note in selection.notes:
        found += wrap("note", note, width)
    return [crop(safe(line, encoding), width) for line in found]
