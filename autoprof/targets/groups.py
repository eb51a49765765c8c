"""Group the modules of a model: repeated blocks under one name, such as ``transformer/h.*/attn``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from torch import nn

from ..base.frame import MODULE_PHASES, Phase
from ..base.names import clean_name
from ..base.weak import has_module
from .coverage import scripted_around
from .structure import Structures
from .target import NO_RULE, Target
from .tree import ModuleNode, walk

_NUMBERED: Final = re.compile(r"(.*?)(\d+)", re.DOTALL)
"""The attribute of a repeated block: ``3``, ``layer3``, ``expert_3``."""


@dataclass(frozen=True, eq=False, slots=True)
class ModuleGroup:
    """The equal modules at one place of repeated blocks; a module that is not repeated is a group of one."""

    name: str
    """``transformer/h.*/attn``: ``/`` after a module that is called, ``.`` after a container that is not."""
    nodes: tuple[ModuleNode, ...]
    """The members, each called, in the order of the model."""
    children: tuple[ModuleGroup, ...] = ()
    """The groups of the nearest called modules inside the members; none inside a hidden module."""
    hidden: bool = False
    """Whether hooks on the members do not fire: TorchScript runs the module around them."""

    @property
    def class_name(self) -> str:
        """The class of the members, as its author wrote it."""
        return self.nodes[0].class_name

    @property
    def blocks(self) -> int:
        """The number of members."""
        return len(self.nodes)

    @property
    def is_recordable(self) -> bool:
        """Whether hooks on the members fire when they are called."""
        return not self.hidden and any(node.called for node in filter(has_module, self.nodes))

    @property
    def visible(self) -> list[ModuleGroup]:
        """The groups inside whose hooks fire, without those that do nothing."""
        return [child for child in self.children if not child.hidden and child.class_name != "Identity"]

    def below(self) -> Iterator[ModuleGroup]:
        """Yield the group and every group inside it, in the order of the model."""
        pending = [self]
        while pending:
            group = pending.pop()
            yield group
            pending.extend(reversed(group.children))

    def targets(self) -> tuple[Target, ...]:
        """Return a target for each member that the program still has, all under the group's name."""
        phases, nodes = frozenset[Phase](MODULE_PHASES), filter(has_module, self.nodes)
        return tuple(Target(node.module, node.fqn, self.name, phases, False, NO_RULE) for node in nodes)


def group_tree(model: nn.Module) -> ModuleGroup:
    """Return the model as a group with all groups inside it; a shared module is in the first of its groups."""
    nodes = walk(model)
    return _Grouping(nodes).root(nodes[0])


class _Grouping:
    def __init__(self, nodes: list[ModuleNode]) -> None:
        self._structures = Structures(nodes)
        self._hidden = scripted_around(nodes)
        self._placed: set[ModuleNode] = set()

    def root(self, node: ModuleNode) -> ModuleGroup:
        self._placed.add(node)
        name = clean_name(node.class_name)
        if node.called:
            return self._group(name, "", (node,))
        return ModuleGroup(name, (node,), tuple(self._inside((node,), "")))

    def _group(self, name: str, prefix: str, nodes: tuple[ModuleNode, ...]) -> ModuleGroup:
        """Return the group of these equal nodes; ``prefix`` begins the names inside it."""
        hidden = nodes[0] in self._hidden
        children: tuple[ModuleGroup, ...] = ()
        if not hidden and not isinstance(nodes[0].inner, nn.MultiheadAttention):  # it uses out_proj's weights only
            children = tuple(self._inside(nodes, prefix))
        return ModuleGroup(name, nodes, children, hidden)

    def _inside(self, parents: Sequence[ModuleNode], prefix: str) -> Iterator[ModuleGroup]:
        """Yield the groups inside equal parents, looking through containers that are never called."""
        for path, nodes in self._alike(parents[0], self._places(parents), bool(prefix)):
            fresh = tuple(node for node in nodes if node not in self._placed)
            self._placed.update(fresh)
            if fresh and fresh[0].called:
                name = clean_name(prefix + path)
                yield self._group(name, f"{name}/", fresh)
            elif fresh:
                yield from self._inside(fresh, f"{prefix}{path}.")

    def _places(self, parents: Sequence[ModuleNode]) -> dict[str, tuple[ModuleNode, ...]]:
        """Return the children of equal parents by attribute."""
        found: dict[str, dict[ModuleNode, None]] = {}
        for parent in parents:
            for attribute, child in parent.named_children():
                found.setdefault(attribute, {}).setdefault(child)
        return {attribute: tuple(nodes) for attribute, nodes in found.items()}

    def _alike(
        self, parent: ModuleNode, places: dict[str, tuple[ModuleNode, ...]], is_named: bool
    ) -> Iterator[tuple[str, tuple[ModuleNode, ...]]]:
        """Yield path and nodes of each group among the children of equal parents, in the order of the model.

        Where the parent is not in their names (``is_named``), no path is a star alone.
        """
        families: dict[str, list[str]] = {}
        for attribute in places:
            if (match := _NUMBERED.fullmatch(attribute)) is not None:
                families.setdefault(match[1], []).append(attribute)
        paths = {attribute: (attribute, [attribute]) for attribute in places}
        for stem, attributes in families.items():
            family = {one: places[one][0] for one in attributes}
            for path, alike in self._repeated(parent, stem, family, is_named or bool(stem)):
                paths |= dict.fromkeys(alike, (path, alike))
        for attribute, (path, alike) in paths.items():
            if attribute == alike[0]:
                yield path, tuple(node for one in alike for node in places[one])

    def _repeated(
        self, parent: ModuleNode, stem: str, family: dict[str, ModuleNode], is_named: bool
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield path and attributes of each set of at least two equal members of a numbered family."""
        kinds: dict[tuple[int, bool], list[str]] = {}
        members: dict[ModuleNode, str] = {}
        for attribute, node in family.items():
            members.setdefault(node, attribute)  # one module may stand at several places
        for node, attribute in members.items():
            kinds.setdefault((self._structures.number(node), node in self._hidden), []).append(attribute)
        repeated = [alike for alike in kinds.values() if len(alike) > 1]
        if len(kinds) > 1 and parent.called:
            listed = isinstance(parent.inner, nn.Sequential) and not stem
            repeated = [alike for alike in repeated if listed and not _is_plain_layer(family[alike[0]])]
        for alike in repeated:
            numbers = [int(attribute[len(stem) :]) for attribute in alike]
            yield stem + ("*" if len(repeated) == 1 and is_named else _spell(numbers)), alike


def _is_plain_layer(node: ModuleNode) -> bool:
    """Return whether it is a layer of torch's own, such as the convolutions of a VGG, which differ in resolution."""
    return not node.children and type(node.inner).__module__.startswith("torch.nn.")


def _spell(numbers: list[int]) -> str:
    """Return the numbers as ``1-11``, or ``0,2..10`` where some between them are missing."""
    first, second, *_ = ordered = sorted(numbers)
    is_run = len(ordered) == ordered[-1] - first + 1
    return f"{first}-{ordered[-1]}" if is_run else f"{first},{second}..{ordered[-1]}"
