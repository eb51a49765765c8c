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


def render_model(model: nn.Module, selection: Selection, depth: int | None, width: int = 80) -> list[str]:
    """Return the tree, then how many modules are selected under how many names, then the notes."""
    weights_width = 14
    root = group_tree(model)
    targets = {id(one.module): one for one in selection if one.shown}
    lines = [_line(root.class_name, root, targets), *_below(root, targets, depth)]
    label = min(max(cells(one.label) for one in lines), 48)
    room = max(width - label - weights_width - 4, 16)
    found = [pad("module", label) + f"{'weights':>{weights_width}}  selected as"]
    for one in lines:
        weights = f"{one.parameters:,}" if one.parameters else "-"
        start = pad(elide(one.label, label), label) + f"{weights:>{weights_width}}"
        found.append(f"{start}  {elide(one.selected, room)}".rstrip())
    names = {one.name for one in targets.values()}
    found += ["", f"{count(len(targets), 'module')} selected, under {count(len(names), 'name')}"]
    for note in selection.notes:
        found += wrap("note", note, width)
    return [crop(safe(line), width) for line in found]


def _below(
    group: ModuleGroup, targets: dict[int, Target], depth: int | None, prefix: str = "", level: int = 1
) -> Iterator[TreeLine]:
    """Yield the lines inside a group, as deep as asked for, or as modules are selected; one level at least."""
    is_open = level == 1 or any(_found(inside, targets) for child in group.children for inside in child.below())
    if level > depth if depth is not None else not is_open:
        return
    for child in group.children:
        label = f"{'  ' * level}{child.name.removeprefix(prefix)}  {child.class_name}"
        yield _line(label + (f" ({child.blocks} x)" if child.blocks > 1 else ""), child, targets)
        yield from _below(child, targets, depth, f"{child.name}/", level + 1)


def _found(group: ModuleGroup, targets: dict[int, Target]) -> list[Target]:
    return [targets[id(node.module)] for node in group.nodes if id(node.module) in targets]


def _line(label: str, group: ModuleGroup, targets: dict[int, Target]) -> TreeLine:
    parameters = sum(0 if is_lazy(one) else one.numel() for one in group.nodes[0].inner.parameters())
    found = _found(group, targets)
    if not found:
        return TreeLine(visible(label), parameters, "")
    names = list(dict.fromkeys(one.name for one in found))
    selected = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    selected += f" ({len(found)} of {group.blocks})" if len(found) < group.blocks else ""
    return TreeLine(visible(label), parameters, selected + (", memory" if found[0].memory else ""))
