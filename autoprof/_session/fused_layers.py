"""Keep hooks off layers whose fused path they would switch off.

In ``eval`` mode ``nn.TransformerEncoderLayer`` computes itself with one fused kernel, unless it or a module inside it
has a hook: then the bits of its result differ. In training mode it has no such path, and hooks change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from .._capture.handle import Probe
from .._process.replace import CallProbe
from ..probes.modes import TRAIN


class _LayerProbe:
    """A probe inside such a layer: attached only while the layer is in training mode."""

    def __init__(self, inner: Probe, layer: nn.Module) -> None:
        self._inner = inner
        self._layer = layer
        self._on = False

    def attach(self) -> None:
        """Start to record, in training mode."""
        self._on = True
        if self._layer.training:
            self._inner.attach()

    def detach(self) -> None:
        """Stop recording."""
        self._on = False
        self._inner.detach()

    def remove(self) -> None:
        """Stop recording for good."""
        self._on = False
        self._inner.remove()

    def follow(self, training: bool) -> None:
        """Take over the mode that the layer changes to."""
        if self._on and training:
            self._inner.attach()
        else:
            self._inner.detach()


class FusedLayers:
    """The probes inside a model's layers with a fused path, and the listener that follows the layers' modes."""

    def __init__(self, model: nn.Module) -> None:
        layers = [module for module in model.modules() if isinstance(module, nn.TransformerEncoderLayer)]
        self._layer_of = {id(module): layer for layer in layers for module in layer.modules()}
        self._probes: dict[int, list[_LayerProbe]] = {id(layer): [] for layer in layers}

    def guard(self, probe: Probe, module: nn.Module) -> Probe:
        """Return the probe of a module as it may be attached."""
        layer = self._layer_of.get(id(module))
        if layer is None:
            return probe
        guarded = _LayerProbe(probe, layer)
        self._probes[id(layer)].append(guarded)
        return guarded

    def watch(self) -> CallProbe | None:
        """Return the probe that follows the layers' modes; None where the model has no such layer."""
        return CallProbe([(TRAIN, self)]) if self._probes else None

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Called before each ``train`` and ``eval`` of a module."""
        for probe in self._probes.get(id(args[0]), ()) if args else ():
            probe.follow(bool(args[1]) if len(args) > 1 else True)
        return False

    def leave(self) -> None:
        """Never called: ``enter`` returns False."""
