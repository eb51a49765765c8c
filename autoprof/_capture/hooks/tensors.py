"""Find the tensors and autograd nodes in the inputs and outputs of a module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from types import ModuleType
from typing import Any, Final, NamedTuple

from torch import Tensor, nn

from ...frame import NOT_MEASURED, NamedShape

MAX_DEPTH: Final = 6
"""Levels of nested containers searched; detection models nest three deep."""
MAX_TENSORS: Final = 256
"""Tensors returned for one value: a list of thousands of tensors is data, not a module's output."""
MAX_SEARCHED: Final = 1024
"""Objects visited by ``search_attributes``."""

_PLAIN = (str, bytes, int, float, complex, type(None))
_NOT_A_RESULT = (type, ModuleType, nn.Module)


class SearchResult(NamedTuple):
    """The nodes found, whether there is a leaf that needs a gradient, whether every object was visited."""

    nodes: list[Any]
    leaf: bool
    complete: bool


_NOTHING: Final = SearchResult([], False, True)


def nodes_of(value: Any) -> Iterator[Any]:
    """Yield the ``grad_fn`` of the tensors of ``tensors_of``."""
    for tensor in tensors_of(value):
        node = tensor.grad_fn
        if node is not None:
            yield node


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, mappings and dataclasses, ``MAX_TENSORS`` at most."""
    return islice(_tensors(value, 0), MAX_TENSORS)


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth < MAX_DEPTH:
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


def search_attributes(value: Any) -> SearchResult:
    """Search for tensors at any depth, also in the attributes of objects; visit at most ``MAX_SEARCHED`` objects.

    For the rare value in which ``nodes_of`` finds nothing. Numbers, strings, classes and modules are skipped.
    """
    if isinstance(value, (tuple, list)) and all(isinstance(one, Tensor) and not one.requires_grad for one in value):
        return _NOTHING  # the usual output of a frozen part
    nodes: list[Any] = []
    leaf, pending = False, [value]
    seen: set[int] = set()
    while pending and len(seen) < MAX_SEARCHED:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            if item.grad_fn is not None:
                nodes.append(item.grad_fn)
            leaf |= item.requires_grad and item.is_leaf
        else:
            pending += [one for one in _inside(item) if not isinstance(one, _PLAIN)]
    return SearchResult(nodes, leaf, not pending)


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
    """Return the shapes of the tensors in nested containers, at most ``MAX_TENSORS``; cheap: it runs at each call."""
    if isinstance(value, Tensor):
        return (value.shape,)
    return tuple(tensor.shape for tensor in islice(_tensors(value, 0), MAX_TENSORS))


def named_shapes(values: Mapping[str, Any]) -> tuple[NamedShape, ...]:
    """Return the shapes of ``shapes_in`` with the path to each tensor: ``features[2]``, ``batch.rgb``.

    A size that is no integer (of a ragged tensor) is ``NOT_MEASURED``.
    """
    return tuple(islice(_named(values, 0, ""), MAX_TENSORS))


def _named(value: Any, depth: int, path: str) -> Iterator[NamedShape]:
    if isinstance(value, Tensor):
        yield NamedShape(path, tuple(size if isinstance(size, int) else NOT_MEASURED for size in value.shape))
    elif depth > MAX_DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(item, depth + 1, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (tuple, list)):
        for at, item in enumerate(value):
            yield from _named(item, depth + 1, f"{path}[{at}]")
    elif hasattr(type(value), "__dataclass_fields__"):
        for key in type(value).__dataclass_fields__:
            yield from _named(getattr(value, key, None), depth + 1, f"{path}.{key}" if path else key)
