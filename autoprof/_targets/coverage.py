"""Which modules hooks cannot see, as far as the model shows it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import nn

from .._core.names import quoted, shorten, visible
from .tree import ModuleNode, walk


class Hidden(NamedTuple):
    """The module inside which no hook fires: ``compiled``, or ``scripted`` for one that TorchScript runs; its fqn."""

    kind: str
    around: str


def find_unseen(model: nn.Module, modules: Collection[nn.Module]) -> list[str]:
    """Return the fqns of ``modules`` whose hooks never fire: containers, and parts of compiled or scripted ones."""
    nodes = walk(model)
    hidden = hidden_nodes(nodes)
    wanted = {id(module) for module in modules}
    return [node.fqn for node in nodes if id(node.module) in wanted and (not node.called or node in hidden)]


def hidden_nodes(nodes: list[ModuleNode]) -> dict[ModuleNode, Hidden]:
    """Return the nodes that no hook sees, of those known before a step."""
    found: dict[ModuleNode, Hidden] = {}
    for node in nodes:  # parents come before their children
        if node.compiled_in is not None:
            found[node] = Hidden("compiled", node.compiled_in)
        elif node in found or isinstance(node.inner, torch.jit.ScriptModule):
            around = found.get(node, Hidden("scripted", node.fqn))
            for child in node.children:
                found.setdefault(child, around)
    return found


def hidden_notes(nodes: list[ModuleNode], chosen: Collection[ModuleNode]) -> list[str]:
    """Name the chosen modules that no hook sees: one note for those inside compiled, one for those inside scripted."""
    hidden = hidden_nodes(nodes)
    inside: dict[str, list[ModuleNode]] = {}
    for node in nodes:
        if node in chosen and node in hidden:
            inside.setdefault(hidden[node].kind, []).append(node)
    notes = []
    for kind, found in inside.items():
        around = list(dict.fromkeys(hidden[node].around for node in found))
        which = shorten(visible(", ".join(node.fqn for node in found)), 200)
        notes.append(f"model: hooks do not fire inside {_around(around, kind)}: {which}")
    return notes


def _around(fqns: list[str], kind: str) -> str:
    if fqns == [""]:
        return f"the model, which is {kind}"
    if len(fqns) == 1:
        return f"the {kind} module {quoted(fqns[0])}"
    return f"the {len(fqns)} {kind} modules {', '.join(map(quoted, fqns[:3]))}" + (", …" if len(fqns) > 3 else "")
