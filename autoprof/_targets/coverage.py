"""Which modules hooks can see: predicted from the model, or measured in one observed step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import torch
from torch import nn

from .._names import quoted, shorten, visible
from .call_counter import CallCounter, is_suspended
from .tree import ModuleNode, walk


class Reason(str, Enum):
    """Reason for which hooks do not see a module, or miss some of its calls."""

    CONTAINER = "container"
    """A container that is never called (``ModuleList``); the modules in it are timed instead."""
    COMPILED = "compiled"
    """Inside a graph of ``torch.compile``, where hooks do not fire."""
    SCRIPTED = "scripted"
    """Inside a scripted or traced module, which TorchScript runs without Python."""
    DIRECT = "direct"
    """Its ``forward`` is called directly, which skips hooks."""
    OWN_CALL = "own-call"
    """Its class has a ``__call__`` that does not call ``nn.Module.__call__``."""
    WEIGHTS = "weights"
    """Another module uses its weights and does not call it, as ``nn.MultiheadAttention`` does with ``out_proj``."""
    UNCALLED = "uncalled"
    """The step did not call it."""

    def __str__(self) -> str:
        return self.value


MAX_NAMED = 3
"""Compiled or scripted modules that one note names."""
HIDDEN = frozenset({Reason.COMPILED, Reason.SCRIPTED})
"""Reasons known before any step, of modules that do run."""

_WHY = {
    Reason.CONTAINER: "a container that is never called; the modules in it are timed instead",
    Reason.DIRECT: "its .forward() is called directly, which skips hooks; call the module itself",
    Reason.OWN_CALL: "its class has a __call__ that skips hooks; call super().__call__() there",
    Reason.WEIGHTS: "another module uses its weights without calling it",
    Reason.UNCALLED: "the step did not call it",
}


@dataclass(frozen=True, slots=True)
class Coverage:
    """Whether hooks see one module. ``seen`` is None where only a step can show it."""

    fqn: str
    class_name: str
    seen: bool | None
    reason: Reason | None = None
    inside: str | None = None
    """The fqn of the compiled or scripted module around it."""
    calls: int = 0
    """Calls in the observed step whose hooks fired."""
    missed: int = 0
    """Runs of its ``forward`` in the observed step that skipped its hooks."""

    @property
    def why(self) -> str:
        """The reason as a sentence; empty where there is none."""
        if self.reason is None:
            return ""
        if self.reason in HIDDEN:
            word = "compiled" if self.reason is Reason.COMPILED else "scripted"
            return f"hooks do not fire inside {_around(self.inside or '', word)}"
        return _WHY[self.reason]


def predict_coverage(model: nn.Module, modules: Collection[nn.Module] | None = None) -> tuple[Coverage, ...]:
    """Return the coverage of each module (of these ``modules`` only, if given) that is known before a step."""
    nodes = walk(model)
    scripted = _scripted_in(nodes)
    return tuple(_predict(node, scripted) for node in _chosen(nodes, modules))


def measure_coverage(
    model: nn.Module,
    counter: CallCounter,
    calls: Mapping[str, int],
    modules: Collection[nn.Module] | None = None,
) -> tuple[Coverage, ...]:
    """Return the coverage of each module (of these ``modules`` only, if given) in one step.

    ``model`` ran the step inside ``counter`` and still has its gradients; ``calls`` maps the fqn of a module to the
    number of calls that hooks on an equal model saw in the same step.
    """
    nodes = walk(model)
    scripted = _scripted_in(nodes)
    weight_lenders = {
        child for node in nodes if isinstance(node.inner, nn.MultiheadAttention) for child in node.children
    }
    found = []
    for node in _chosen(nodes, modules):
        before = _predict(node, scripted)
        seen, ran, missed = calls.get(node.fqn, 0), counter.called(node.inner), counter.direct(node.inner)
        reason = before.reason
        if reason is None and missed:
            own = type(node.inner).__call__ is not nn.Module.__call__ and not ran
            reason = Reason.OWN_CALL if own else Reason.DIRECT
        elif reason is None and not seen:
            used = any(weight.grad is not None for weight in node.inner.parameters(recurse=False))
            reason = Reason.WEIGHTS if used or node in weight_lenders else Reason.UNCALLED
        elif seen:
            reason = None  # it was called outside the graph, or not compiled after all
        found.append(Coverage(node.fqn, node.class_name, seen > 0, reason, before.inside, seen, missed))
    return tuple(found)


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


def generator_notes(nodes: Iterable[ModuleNode]) -> list[str]:
    """Name the modules whose ``forward`` is suspended and resumed, in one note; a call does little of their work."""
    found = [node.fqn or "the model itself" for node in nodes if is_suspended(node.inner)]
    if not found:
        return []
    return [
        f"model: the forward of {shorten(visible(', '.join(found)), 200)} is a generator or a coroutine: "
        "a call only creates it, and its work is timed in the module that runs it"
    ]


def _around_all(fqns: list[str], word: str) -> str:
    if len(fqns) == 1:
        return _around(fqns[0], word)
    first = ", ".join(map(quoted, fqns[:MAX_NAMED])) + (", …" if len(fqns) > MAX_NAMED else "")
    return f"the {len(fqns)} {word} modules {first}"


def _around(fqn: str, word: str) -> str:
    return f"the {word} module {quoted(fqn)}" if fqn else f"the model, which is {word}"


def _predict(node: ModuleNode, scripted: Mapping[ModuleNode, str]) -> Coverage:
    if not node.called:
        return Coverage(node.fqn, node.class_name, False, Reason.CONTAINER)
    if node.compiled_in is not None:
        return Coverage(node.fqn, node.class_name, False, Reason.COMPILED, node.compiled_in)
    if node in scripted:
        return Coverage(node.fqn, node.class_name, False, Reason.SCRIPTED, scripted[node])
    return Coverage(node.fqn, node.class_name, None)


def _scripted_in(nodes: list[ModuleNode]) -> dict[ModuleNode, str]:
    """Map each node inside a scripted or traced module to the fqn of the outermost such module."""
    found: dict[ModuleNode, str] = {}
    for node in nodes:
        if node in found or isinstance(node.inner, torch.jit.ScriptModule):
            for child in node.children:
                found.setdefault(child, found.get(node, node.fqn))
    return found


def _chosen(nodes: list[ModuleNode], modules: Collection[nn.Module] | None) -> list[ModuleNode]:
    if modules is None:
        return nodes
    wanted = {id(module) for module in modules}
    return [node for node in nodes if id(node.module) in wanted]
