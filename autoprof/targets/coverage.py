"""Which modules hooks cannot see, as far as the model shows it: those that TorchScript runs."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from ..base.names import shorten, visible
from .tree import ModuleNode, walk


def find_unseen(model: nn.Module, modules: Collection[nn.Module]) -> list[str]:
    """Return the fqns of ``modules`` whose hooks never fire: containers, and parts of scripted ones."""
    nodes = walk(model)
    scripted = scripted_around(nodes)
    wanted = {id(module) for module in modules}
    return [node.fqn for node in nodes if id(node.module) in wanted and (not node.called or node in scripted)]


def scripted_around(nodes: list[ModuleNode]) -> dict[ModuleNode, str]:
    """Return the nodes inside scripted modules, each with the fqn of the scripted module."""
    found: dict[ModuleNode, str] = {}
    for node in nodes:  # parents come before their children
        if node in found or isinstance(node.inner, torch.jit.ScriptModule):
            for child in node.children:
                found.setdefault(child, found.get(node, node.fqn))
    return found


def hidden_notes(nodes: list[ModuleNode], chosen: Collection[ModuleNode]) -> list[str]:
    """Name the chosen modules that no hook sees."""
    scripted = scripted_around(nodes)
    inside = [node.fqn for node in nodes if node in chosen and node in scripted]
    which = shorten(visible(", ".join(inside)), 200)
    return [f"model: hooks do not fire inside modules that TorchScript runs: {which}"] if inside else []
