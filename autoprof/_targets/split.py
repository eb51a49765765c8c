"""Split members off a group: each of them becomes a group of one, under its own name."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from .._names import clean_name
from .groups import ModuleGroup
from .tree import ModuleNode


class Split(NamedTuple):
    """The tree after the split, and the groups that were split off."""

    root: ModuleGroup
    alone: tuple[ModuleGroup, ...]


def split_group(root: ModuleGroup, group: ModuleGroup, members: Collection[ModuleNode]) -> Split | None:
    """Return the tree in which these members of the group stand alone; the others keep the group's name.

    None where a member shares modules with another, or its name is taken.
    """
    chosen = [node for node in group.nodes if node in members]
    rest = tuple(node for node in group.nodes if node not in members)
    inside = [_below((node,)) for node in chosen]
    others = _below(rest)
    if not rest or len(others.union(*inside)) != len(others) + sum(map(len, inside)):
        return None
    alone = tuple(
        _part(group, nodes, group.name, _own_name(group.name, node.fqn))
        for node, nodes in zip(chosen, inside, strict=True)
    )
    names = {one.name for one in root.below()}
    if any(one.name in names for part in alone for one in part.below()):
        return None
    parts = sorted((*alone, _part(group, others, group.name, group.name)), key=lambda one: _place(group, one))
    return Split(_replaced(root, group, tuple(parts)), alone)


def _below(nodes: Collection[ModuleNode]) -> set[ModuleNode]:
    """Return the nodes and all nodes inside them."""
    found: set[ModuleNode] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.children)
    return found


def _part(group: ModuleGroup, inside: set[ModuleNode], old: str, new: str) -> ModuleGroup:
    """Return the part of the group that lies inside these nodes; names that begin with ``old`` begin with ``new``."""
    children = [child for child in group.children if not inside.isdisjoint(child.nodes)]
    return ModuleGroup(
        clean_name(new + group.name.removeprefix(old)),
        tuple(node for node in group.nodes if node in inside),
        tuple(_part(child, inside, old, new) for child in children),
        group.hidden,
    )


def _own_name(name: str, fqn: str) -> str:
    """Return the member's fqn, with the separators of the group's name: ``h.13/mlp`` of ``h.*/mlp``."""
    separators = re.findall(r"[./]", name)
    words = fqn.split(".")
    if len(separators) != len(words) - 1:
        return clean_name(fqn.replace(".", "/"))
    return clean_name(words[0] + "".join(map("".join, zip(separators, words[1:], strict=True))))


def _place(group: ModuleGroup, part: ModuleGroup) -> int:
    return group.nodes.index(part.nodes[0])


def _replaced(tree: ModuleGroup, group: ModuleGroup, parts: tuple[ModuleGroup, ...]) -> ModuleGroup:
    """Return the tree with the parts in the group's place."""
    children: list[ModuleGroup] = []
    for child in tree.children:
        children.extend(parts if child is group else (_replaced(child, group, parts),))
    return replace(tree, children=tuple(children))
