"""Rules × nodes → targets. The first rule that matches a module wins; a rule that matches nothing is an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

from torch import nn

from .._names import clean_name
from ..config import Config, TargetRule
from ..config.source import IN_PYTHON
from ..errors import TargetError
from ..frame import MODULE_PHASES, Phase
from .coverage import generator_notes, hidden_notes
from .no_match import explain_no_match
from .tree import ModuleNode, walk

NO_RULE = -1
"""The ``rule`` of a target where the configuration has no rules."""


@dataclass(frozen=True, slots=True)
class Target:
    """A module to time: its name, the phases to time, and the index of the rule that chose it.

    Without ``shown`` it has no spans: its own time only counts for the phases of a step.
    """

    module: nn.Module
    fqn: str
    name: str
    phases: frozenset[Phase]
    memory: bool
    rule: int
    shapes: bool = False
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Selection(Sequence[Target]):
    """The targets in the order of the model, and notes on rules without effect and on hidden modules."""

    targets: tuple[Target, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def __iter__(self) -> Iterator[Target]:
        return iter(self.targets)

    @overload
    def __getitem__(self, index: int) -> Target: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Target, ...]: ...
    def __getitem__(self, index: int | slice) -> Target | tuple[Target, ...]:
        return self.targets[index]


def select_targets(model: nn.Module, config: Config, where: str = IN_PYTHON) -> Selection:
    """Return the targets of the configuration's rules; without rules, every direct child of the model.

    ``where`` names a configuration that has no file. Raises one ``TargetError`` for all rules that match nothing.
    """
    nodes = walk(model)
    source = replace(config.source, where=where) if config.source.where == IN_PYTHON else config.source
    if not config.targets:
        return _children(nodes)
    taken: dict[ModuleNode, Target] = {}
    notes: list[str] = []
    missing: list[str] = []
    for index, rule in enumerate(config.targets):
        chosen = list(_chosen(rule, index, nodes))
        new = {node: target for node, target in reversed(chosen) if node not in taken}
        taken |= new
        if not chosen:
            key, reason = explain_no_match(rule, nodes)
            missing.append(f"{source.place(('targets', index, *key))}: {reason}")
        elif not new:
            earlier = sorted({taken[node].rule for node, _ in chosen})
            rules = ", ".join(f"targets[{number}]" for number in earlier)
            notes.append(
                f"{source.place(('targets', index))}: has no effect: every module that it matches belongs to {rules}"
            )
    if missing:
        raise TargetError("\n".join(missing))
    notes += generator_notes(node for node in nodes if node in taken)
    return _selection(nodes, taken, notes)


def _chosen(rule: TargetRule, index: int, nodes: list[ModuleNode]) -> Iterator[tuple[ModuleNode, Target]]:
    """Yield the nodes that the rule matches, then the nodes inside the containers that it matches."""
    phases, shapes = frozenset[Phase](rule.phases), rule.detail == "shapes"
    containers: list[tuple[ModuleNode, str]] = []
    for node in nodes:
        name = _name(rule, node)
        if name is None:
            continue
        if node.called:
            yield node, Target(node.module, node.fqn, name, phases, rule.memory, index, shapes)
        else:
            containers.append((node, name))
    for container, name in containers:
        for node in container.called_below():
            yield node, Target(node.module, node.fqn, name, phases, rule.memory, index, shapes)


def _name(rule: TargetRule, node: ModuleNode) -> str | None:
    """Return the name that the rule gives to the node, by the first of its fqns that matches, or None."""
    if rule.type_pattern is not None and not any(map(rule.type_pattern.fullmatch, node.class_names)):
        return None
    match = next(filter(None, map(rule.match_pattern.fullmatch, node.fqns)), None)
    if match is None:
        return None
    return clean_name(_default_name(node, match.string) if rule.name is None else match.expand(rule.name))


def _default_name(node: ModuleNode, fqn: str) -> str:
    return fqn.replace(".", "/") or node.class_name


def _children(nodes: list[ModuleNode]) -> Selection:
    root = nodes[0]
    taken: dict[ModuleNode, Target] = {}
    for child in root.children:
        name = clean_name(_default_name(child, child.fqn))
        for node in [child] if child.called else child.called_below():
            taken.setdefault(node, Target(node.module, node.fqn, name, frozenset(MODULE_PHASES), False, NO_RULE))
    if not taken and root.called:
        taken[root] = Target(root.module, "", clean_name(root.class_name), frozenset(MODULE_PHASES), False, NO_RULE)
    if not taken:
        raise TargetError(
            f"model: a {root.class_name} without a module that is ever called; allowed: one with 'forward'"
        )
    return _selection(nodes, taken, generator_notes(nodes))


def _selection(nodes: list[ModuleNode], taken: dict[ModuleNode, Target], notes: list[str]) -> Selection:
    targets = tuple(taken[node] for node in nodes if node in taken)
    return Selection(targets, (*notes, *hidden_notes(nodes, taken)))
