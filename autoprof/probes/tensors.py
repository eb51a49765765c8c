"""Find the autograd nodes behind whatever a module takes or returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import Tensor

DEPTH: Final = 6
"""Containers inside containers that are looked into; detection models nest three deep."""
TENSORS: Final = 256
"""Tensors looked at in one value: a list of thousands of tensors is data, not a module's output."""


def nodes_of(value: Any) -> Iterator[Any]:
    """Yield the ``grad_fn`` of every tensor in nested tuples, lists, mappings and dataclasses, at most ``TENSORS``."""
    left = TENSORS
    for tensor in _tensors(value, 0):
        node = tensor.grad_fn
        if node is not None:
            yield node
        left -= 1
        if not left:
            return


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth < DEPTH:
        if isinstance(value, (tuple, list)):
            inside: Any = value
        elif isinstance(value, Mapping):
            inside = value.values()
        elif hasattr(type(value), "__dataclass_fields__"):
            inside = (getattr(value, name, None) for name in type(value).__dataclass_fields__)
        else:
            return
        for item in inside:
            yield from _tensors(item, depth + 1)
