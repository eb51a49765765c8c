"""Which modules hooks cannot see, as far as the model shows it."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from enum import Enum
from types import CodeType

import torch
from torch import nn

from .._core.names import quoted, shorten, visible
from .tree import ModuleNode, walk


class Reason(str, Enum):
    """Reason for which hooks do not see a module."""

    COMPILED = "compiled"
    """Inside a graph of ``torch.compile``, where hooks do not fire."""
    SCRIPTED = "scripted"
    """Inside a scripted or traced module, which TorchScript runs without Python."""

    def __str__(self) -> str:
        return self.value


def find_unseen(model: nn.Module, modules: Collection[nn.Module]) -> list[str]:
    """Return the fqns of ``modules`` whose hooks never fire: containers, and parts of compiled or scripted ones."""
    nodes = walk(model)
    hidden = hidden_reasons(nodes)
    wanted = {id(module) for module in modules}
    return [node.fqn for node in nodes if id(node.module) in wanted and (not node.called or node in hidden)]


def hidden_reasons(nodes: list[ModuleNode]) -> dict[ModuleNode, Reason]:
    """Return the reason of each node that no hook sees, of those known before a step."""
    scripted = dict.fromkeys(_scripted_in(nodes), Reason.SCRIPTED)
    return scripted | {node: Reason.COMPILED for node in nodes if node.compiled_in is not None}


def hidden_notes(nodes: list[ModuleNode], taken: Iterable[ModuleNode]) -> list[str]:
    """Name the chosen modules that no hook sees: one note for those inside compiled, one for those inside scripted."""
    scripted = _scripted_in(nodes)
    chosen = set(taken)
    inside: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        if node in chosen and node.compiled_in is not None:
            inside.setdefault("compiled", {}).setdefault(node.compiled_in, []).append(node.fqn)
        elif node in chosen and node in scripted:
            inside.setdefault("scripted", {}).setdefault(scripted[node], []).append(node.fqn)
    return [
        f"model: hooks do not fire inside {_around_all(list(by_fqn), word)}: "
        f"{shorten(visible(', '.join(fqn for fqns in by_fqn.values() for fqn in fqns)), 200)}"
        for word, by_fqn in inside.items()
    ]


def _is_suspended(module: nn.Module) -> bool:
    """Return whether the module's ``forward`` is a generator or a coroutine, so that a call only creates it."""
    code = getattr(inspect.unwrap(module.forward), "__code__", None)
    suspended = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return isinstance(code, CodeType) and bool(code.co_flags & suspended)


def generator_notes(nodes: Iterable[ModuleNode]) -> list[str]:
    """Name the modules whose ``forward`` is suspended and resumed, in one note; a call does little of their work."""
    found = [node.fqn or "the model itself" for node in nodes if _is_suspended(node.inner)]
    if not found:
        return []
    return [
        f"model: the forward of {shorten(visible(', '.join(found)), 200)} is a generator or a coroutine: "
        "a call only creates it, and its work is timed in the module that runs it"
    ]


def _around_all(fqns: list[str], word: str) -> str:
    max_named = 3
    if len(fqns) == 1:
        return _around(fqns[0], word)
    first = ", ".join(map(quoted, fqns[:max_named])) + (", …" if len(fqns) > max_named else "")
    return f"the {len(fqns)} {word} modules {first}"


def _around(fqn: str, word: str) -> str:
    return f"the {word} module {quoted(fqn)}" if fqn else f"the model, which is {word}"


def _scripted_in(nodes: list[ModuleNode]) -> dict[ModuleNode, str]:
    """Map each node inside a scripted or traced module to the fqn of the outermost such module."""
    found: dict[ModuleNode, str] = {}
    for node in nodes:
        if node in found or isinstance(node.inner, torch.jit.ScriptModule):
            for child in node.children:
                found.setdefault(child, found.get(node, node.fqn))
    return found
