"""Number the structures of modules: two modules have one number if they are built alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torch import nn

from .tree import ModuleNode

_Shape = tuple[str, tuple[int, ...]]
_Structure = tuple[str, tuple[_Shape, ...], tuple[tuple[str, Any], ...], tuple[tuple[str, int], ...]]


class Structures:
    """The structure of each node: class, shapes of parameters, children; of a leaf also its plain settings.

    Not compared: buffers, and settings of modules with children, which differ from block to block of most models.
    """

    def __init__(self, nodes: list[ModuleNode]) -> None:
        self._numbers: dict[_Structure, int] = {}
        self._of: dict[ModuleNode, int] = {}
        self._flattened = frozenset(_flattened(nodes))

    def number(self, node: ModuleNode) -> int:
        """Return the number of the node's structure."""
        if node not in self._of:
            self._of[node] = -1  # of a module that holds itself
            self._of[node] = self._numbers.setdefault(self._structure(node), len(self._numbers))
        return self._of[node]

    def _structure(self, node: ModuleNode) -> _Structure:
        # Class names of modules that libraries exchange for each other from block to block, with the rate.
        if not node.children and re.fullmatch(r"Identity|\w*Drop(out|Path|Block)\w*|StochasticDepth", node.class_name):
            return "Identity", (), (), ()
        shapes = () if node in self._flattened else tuple(_shapes(node.inner))
        settings = () if node.children else tuple(_settings(node.inner))
        below = tuple((name, self.number(child)) for name, child in node.named_children())
        return node.class_name, shapes, settings, below


def _flattened(nodes: list[ModuleNode]) -> Iterator[ModuleNode]:
    """Yield the nodes inside FSDP1, where a parameter is this rank's part of a flat one."""
    found = set[ModuleNode]()
    for node in nodes:
        if node in found or "FullyShardedDataParallel" in node.class_names:
            found.add(node)
            found.update(node.children)
            yield node


def _shapes(module: nn.Module) -> Iterator[_Shape]:
    for name, parameter in module._parameters.items():
        if parameter is not None:
            shape = getattr(parameter, "ds_shape", None)  # DeepSpeed's ZeRO-3 leaves an empty tensor here
            try:
                yield name, tuple(parameter.shape if shape is None else shape)
            except RuntimeError:  # a lazy parameter
                yield name, ()


def _settings(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        # Names of attributes that tell equal blocks apart by their place.
        if (
            name[0] == "_"
            or name == "training"
            or re.fullmatch(r"(\w*_)?(idx|id|index|number|layer|layer_num|seed)", name)
        ):
            continue
        if all(isinstance(part, (int, float)) for part in (value if isinstance(value, tuple) else (value,))):
            yield name, value
