"""Rules × nodes → targets. The first rule that matches a module wins; a rule that matches nothing is an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from torch import nn

from ..base.frame import Phase
from ..base.names import clean_name
from ..config import Settings, TargetRule
from ..config.source import IN_PYTHON
from ..errors import TargetError
from .coverage import hidden_notes
from .groups import group_tree
from .no_match import explain_no_match
from .suggest import first_cut
from .target import Target
from .tree import ModuleNode, walk


class Selection(tuple[Target, ...]):
    """The targets in the order of the model, with notes on rules without effect and on hidden modules."""

    notes: tuple[str, ...]

    def __new__(cls, targets: Iterable[Target], notes: Iterable[str] = ()) -> Selection:
        """Make a selection."""
        made = super().__new__(cls, targets)
        made.notes = tuple(notes)
        return made


def select_targets(model: nn.Module, config: Settings, where: str = IN_PYTHON) -> Selection:
    """Return the targets of the configuration's rules; without rules, the model's first levels of nesting.

    ``where`` names a configuration that has no file. Raises one ``TargetError`` for all rules that match nothing.
    """
    nodes = walk(model)
    source = replace(config.source, where=where) if config.source.where == IN_PYTHON else config.source
    if not config.targets:
        return _first_cut(model, nodes)
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
    return Selection((taken[node] for node in nodes if node in taken), [*notes, *hidden_notes(nodes, taken)])


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
    default = match.string.replace(".", "/") or node.class_name
    return clean_name(default if rule.name is None else match.expand(rule.name))


def _first_cut(model: nn.Module, nodes: list[ModuleNode]) -> Selection:
    """Return the targets that a session without rules begins with."""
    tree = group_tree(model)
    cut = first_cut(tree)
    if cut == (tree,) and not tree.nodes[0].called:
        raise TargetError(
            f"model: a {tree.class_name} without a module that is ever called; allowed: one with 'forward'"
        )
    hidden = {node.fqn for group in tree.below() if group.hidden for node in group.nodes}
    notes = hidden_notes(nodes, [node for node in nodes if node.fqn in hidden])
    targets = {target.fqn: target for group in cut for target in group.targets()}
    return Selection((targets[node.fqn] for node in nodes if node.fqn in targets), notes)
