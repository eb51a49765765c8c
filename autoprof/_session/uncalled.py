"""Name the modules that are trained and never called, so that hooks miss their time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from torch import nn
from torch.nn.parameter import is_lazy

from .._names import shorten, visible
from .._notes import Notes
from .._resolve import RawStep
from .._resolve.observer import Observer
from .._targets import walk
from ..frame import FrameRun, Layout
from .observers import CompiledModules

STEPS: Final = 3
"""Recorded steps of one set of targets after which a module without a call counts as uncalled."""


class UncalledModules(Observer):
    """Note the targets without a call although their weights change or modules inside them are called."""

    provides = "note on modules without a call"

    def __init__(self, model: nn.Module, compiled: CompiledModules, notes: Notes) -> None:
        self._compiled = compiled
        self._notes = notes
        nodes = walk(model)
        lenders = [child for node in nodes if isinstance(node.inner, nn.MultiheadAttention) for child in node.children]
        self._lenders = {child.fqn for child in lenders}
        """Modules of torch's own whose weights are used without a call: nothing in the program can be changed."""
        self._called_by_parts = {node.fqn for node in nodes if _is_sequence(node.inner)}
        """Modules whose work is that of the modules in them, which a program may call one by one."""
        self._weights = {
            node.fqn: [(one, one._version) for one in node.inner._parameters.values() if _is_trained(one)]
            for node in nodes
        }
        self._owners: dict[int, list[str]] = {}
        """The fqns of the modules that own each weight: more than one where they share it, as an embedding does."""
        for fqn, weights in self._weights.items():
            for weight, _version in weights:
                self._owners.setdefault(id(weight), []).append(fqn)
        self._cut: int | None = None
        self._steps = 0
        self._recorded: set[str] = set()
        self._called: set[str] = set()
        self._layout: Layout | None = None

    def step(self, raw: RawStep) -> RawStep:
        """Remember the targets of a step that is one of several with the same ones."""
        self._steps = self._steps + 1 if raw.cut == self._cut else 1
        self._cut = raw.cut
        if self._steps == STEPS:
            self._recorded |= raw.instrumented
        return raw

    def frames(self, run: FrameRun) -> None:
        """Remember the modules of the spans."""
        if run.plain:
            self._remember(run.layout)
        else:
            for frame in run.frames:
                self._remember(frame.layout)

    def _remember(self, layout: Layout) -> None:
        if layout is not self._layout:
            self._layout = layout
            self._called.update(fqn for fqn in layout.fqns if fqn is not None)

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Note the modules that ran without a call."""
        uncalled = self._recorded - self._called - self._compiled.named - self._lenders
        found = [fqn for fqn in self._weights if fqn in uncalled and self._ran(fqn, uncalled)]
        outermost = [fqn for fqn in found if not any(_is_inside(fqn, other) for other in found)]
        if outermost:
            names = shorten(visible(", ".join(fqn or "the model itself" for fqn in outermost)), 200)
            self._notes.warn_once(
                f"model: trained, but never called: {names}. Either .forward() is called directly, which skips hooks "
                "(call the module itself), or another module uses the weights; the time is in the module around it"
            )
        return {}

    def _ran(self, fqn: str, uncalled: set[str]) -> bool:
        """Return whether a module without a call did some work, seen by calls in it or by weights that changed."""
        if any(_is_inside(other, fqn) for other in self._called):
            return fqn not in self._called_by_parts
        inside = (weights for other, weights in self._weights.items() if other == fqn or _is_inside(other, fqn))
        return any(
            weight._version != version and not self._is_shared(weight, fqn, uncalled)
            for weights in inside
            for weight, version in weights
        )

    def _is_shared(self, weight: nn.Parameter, fqn: str, uncalled: set[str]) -> bool:
        """Return whether a module elsewhere owns the weight too and may have been called: its calls change it."""
        owners = self._owners[id(weight)]
        return any(owner != fqn and owner not in uncalled and not _is_inside(owner, fqn) for owner in owners)


def _is_inside(fqn: str, other: str) -> bool:
    return fqn != other and (other == "" or fqn.startswith(f"{other}."))


def _is_sequence(module: nn.Module) -> bool:
    """Return whether a call of the module is only one of each module in it; False for a scripted one."""
    return getattr(type(module), "forward", None) is nn.Sequential.forward


def _is_trained(parameter: nn.Parameter | None) -> TypeGuard[nn.Parameter]:
    if parameter is None or is_lazy(parameter):
        return False
    return parameter.requires_grad and not parameter.is_inference()
