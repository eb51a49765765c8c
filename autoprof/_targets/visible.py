"""Which modules a hook can see: what is certain before a step, and what one watched step adds to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import torch
from torch import nn

from .._names import quoted, shorten, visible
from .tree import Node, walk
from .watch import CallWatch


class Reason(str, Enum):
    """Why a module is not seen, or not whenever it runs."""

    CONTAINER = "container"
    """It holds modules and is never called (``ModuleList``); they are timed in its place."""
    COMPILED = "compiled"
    """It is inside a graph of ``torch.compile``, where hooks do not fire."""
    SCRIPTED = "scripted"
    """It is inside a scripted or traced module, which TorchScript runs without Python."""
    DIRECT = "direct"
    """Its ``forward`` is called directly, which passes hooks by."""
    OWN_CALL = "own-call"
    """Its class has a ``__call__`` that never reaches that of ``nn.Module``."""
    FUSED = "fused"
    """A fused path computes it without calling it, and hooks inside switch that path off."""
    WEIGHTS = "weights"
    """Another module uses its weights and does not call it, as ``nn.MultiheadAttention`` does with ``out_proj``."""
    UNCALLED = "uncalled"
    """The step did not call it."""

    def __str__(self) -> str:
        return self.value


HIDDEN = frozenset({Reason.COMPILED, Reason.SCRIPTED})
"""Reasons that are certain before a step has run, of modules that do run."""

_WHY = {
    Reason.CONTAINER: "it holds modules and is never called; they are timed in its place",
    Reason.DIRECT: "its .forward() is called directly, which passes hooks by; call the module itself",
    Reason.OWN_CALL: "its class has a __call__ that passes hooks by; call super().__call__() there",
    Reason.FUSED: "a fused path computes it; hooks on it switch that path off",
    Reason.WEIGHTS: "another module uses its weights without calling it",
    Reason.UNCALLED: "the step did not call it",
}


@dataclass(frozen=True, slots=True)
class Visibility:
    """What can be seen of one module. ``seen`` is None where only a step can tell."""

    fqn: str
    class_name: str
    seen: bool | None
    reason: Reason | None = None
    inside: str | None = None
    """The fqn of the compiled or scripted module around it."""
    calls: int = 0
    """Calls whose hooks fired in the watched step."""
    missed: int = 0
    """Runs of its ``forward`` in the watched step that passed its hooks by."""

    @property
    def why(self) -> str:
        """Say the reason in a sentence; empty where nothing is hidden."""
        if self.reason is None:
            return ""
        if self.reason in HIDDEN:
            word = "compiled" if self.reason is Reason.COMPILED else "scripted"
            return f"hooks do not fire inside {_around(self.inside or '', word)}"
        return _WHY[self.reason]


def foresee(model: nn.Module, modules: Collection[nn.Module] | None = None) -> tuple[Visibility, ...]:
    """Return what is certain of each module (of these ``modules`` only, if given) before a step has run."""
    nodes = walk(model)
    scripted = _scripted_in(nodes)
    return tuple(_foresee(node, scripted) for node in _chosen(nodes, modules))


def judge(
    model: nn.Module,
    watch: CallWatch,
    calls: Mapping[str, int],
    modules: Collection[nn.Module] | None = None,
) -> tuple[Visibility, ...]:
    """Return what a step showed of each module (of these ``modules`` only, if given).

    ``model`` has run the step under ``watch``, with the gradients it left; ``calls`` maps the fqn of a module to the
    calls that hooks on an equal model saw in the same step.
    """
    nodes = walk(model)
    scripted = _scripted_in(nodes)
    lends = {child for node in nodes if isinstance(node.inner, nn.MultiheadAttention) for child in node.children}
    found = []
    for node in _chosen(nodes, modules):
        before = _foresee(node, scripted)
        seen, ran, missed = calls.get(node.fqn, 0), watch.called(node.inner), watch.direct(node.inner)
        reason = before.reason
        if reason is None and missed:
            own = type(node.inner).__call__ is not nn.Module.__call__ and not ran
            reason = Reason.OWN_CALL if own else Reason.DIRECT
        elif reason is None and seen and not ran:
            reason = Reason.FUSED if watch.watched else None
        elif reason is None and not seen:
            used = any(weight.grad is not None for weight in node.inner.parameters(recurse=False))
            reason = Reason.WEIGHTS if used or node in lends else Reason.UNCALLED
        elif seen:
            reason = None  # it was called outside the graph, or the compiler left it out
        found.append(Visibility(node.fqn, node.class_name, seen > 0, reason, before.inside, seen, missed))
    return tuple(found)


def hidden_notes(nodes: list[Node], taken: Iterable[Node]) -> list[str]:
    """Name the chosen modules that no hook will ever see, one note for each compiled or scripted module around them."""
    scripted = _scripted_in(nodes)
    chosen = set(taken)
    around: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if node in chosen and node.compiled_in is not None:
            around.setdefault(("compiled", node.compiled_in), []).append(node.fqn)
        elif node in chosen and node in scripted:
            around.setdefault(("scripted", scripted[node]), []).append(node.fqn)
    return [
        f"model: hooks do not fire inside {_around(fqn, word)}: {shorten(visible(', '.join(inside)), 200)}"
        for (word, fqn), inside in around.items()
    ]


def _around(fqn: str, word: str) -> str:
    return f"the {word} module {quoted(fqn)}" if fqn else f"the model, which is {word}"


def _foresee(node: Node, scripted: Mapping[Node, str]) -> Visibility:
    if not node.called:
        return Visibility(node.fqn, node.class_name, False, Reason.CONTAINER)
    if node.compiled_in is not None:
        return Visibility(node.fqn, node.class_name, False, Reason.COMPILED, node.compiled_in)
    if node in scripted:
        return Visibility(node.fqn, node.class_name, False, Reason.SCRIPTED, scripted[node])
    return Visibility(node.fqn, node.class_name, None)


def _scripted_in(nodes: list[Node]) -> dict[Node, str]:
    """Map each node inside a scripted or traced module to the fqn of the outermost such module."""
    found: dict[Node, str] = {}
    for node in nodes:
        if node in found or isinstance(node.inner, torch.jit.ScriptModule):
            for child in node.children:
                found.setdefault(child, found.get(node, node.fqn))
    return found


def _chosen(nodes: list[Node], modules: Collection[nn.Module] | None) -> list[Node]:
    if modules is None:
        return nodes
    wanted = {id(module) for module in modules}
    return [node for node in nodes if id(node.module) in wanted]
