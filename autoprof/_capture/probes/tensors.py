"""Find the autograd nodes behind whatever a module takes or returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from types import ModuleType
from typing import Any, Final, NamedTuple

from torch import Tensor, nn

from ...frame import NOT_MEASURED, NamedShape

DEPTH: Final = 6
"""Containers inside containers that are looked into; detection models nest three deep."""
TENSORS: Final = 256
"""Tensors looked at in one value: a list of thousands of tensors is data, not a module's output."""
SEARCHED: Final = 1024
"""Things looked at in the search of one value in which no node lies in plain sight."""

_PLAIN = (str, bytes, int, float, complex, type(None))
_NOT_A_RESULT = (type, ModuleType, nn.Module)


class Found(NamedTuple):
    """What a search found: nodes, whether there is a leaf that a gradient may reach, whether all was looked at."""

    nodes: list[Any]
    leaf: bool
    whole: bool


_NOTHING: Final = Found([], False, True)


def nodes_of(value: Any) -> Iterator[Any]:
    """Yield the ``grad_fn`` of every tensor in nested tuples, lists, mappings and dataclasses, at most ``TENSORS``."""
    for tensor in tensors_of(value):
        node = tensor.grad_fn
        if node is not None:
            yield node


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, mappings and dataclasses, at most ``TENSORS``."""
    return islice(_tensors(value, 0), TENSORS)


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


def search(value: Any) -> Found:
    """Look for tensors however deep they lie, in the attributes of any object too; ``SEARCHED`` things at most.

    For the rare value in which ``nodes_of`` finds nothing. Whatever is a number, a text, a class or a module is passed
    over.
    """
    if isinstance(value, (tuple, list)) and all(isinstance(one, Tensor) and not one.requires_grad for one in value):
        return _NOTHING  # what a frozen part returns, call by call
    nodes: list[Any] = []
    leaf, waiting = False, [value]
    seen: set[int] = set()
    while waiting and len(seen) < SEARCHED:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            if item.grad_fn is not None:
                nodes.append(item.grad_fn)
            leaf |= item.requires_grad and item.is_leaf
        else:
            waiting += [one for one in _inside(item) if not isinstance(one, _PLAIN)]
    return Found(nodes, leaf, not waiting)


def _inside(item: Any) -> list[Any]:
    if isinstance(item, Mapping):
        return list(item.values())
    if isinstance(item, (tuple, list, set, frozenset)):
        return list(item)
    if callable(item) or isinstance(item, _NOT_A_RESULT):
        return []
    slots = [getattr(item, name, None) for kind in type(item).__mro__ for name in _slots(kind)]
    return [*slots, *getattr(item, "__dict__", {}).values()]


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def shapes_in(value: Any) -> tuple[Any, ...]:
    """Return the shapes of the tensors in sight, at most ``TENSORS``; cheap, for it is done at each call."""
    if isinstance(value, Tensor):
        return (value.shape,)
    return tuple(tensor.shape for tensor in islice(_tensors(value, 0), TENSORS))


def named_shapes(values: Mapping[str, Any]) -> tuple[NamedShape, ...]:
    """Return what ``shapes_in`` finds, with the way to each tensor: ``features[2]``, ``batch.rgb``.

    A size that is no number (of a ragged tensor) is ``NOT_MEASURED``.
    """
    return tuple(islice(_named(values, 0, ""), TENSORS))


def _named(value: Any, depth: int, way: str) -> Iterator[NamedShape]:
    if isinstance(value, Tensor):
        yield NamedShape(way, tuple(size if isinstance(size, int) else NOT_MEASURED for size in value.shape))
    elif depth > DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(item, depth + 1, f"{way}.{key}" if way else str(key))
    elif isinstance(value, (tuple, list)):
        for at, item in enumerate(value):
            yield from _named(item, depth + 1, f"{way}[{at}]")
    elif hasattr(type(value), "__dataclass_fields__"):
        for key in type(value).__dataclass_fields__:
            yield from _named(getattr(value, key, None), depth + 1, f"{way}.{key}" if way else key)
