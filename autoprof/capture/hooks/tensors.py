"""Find the tensors and autograd nodes in the inputs and outputs of a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import ModuleType
from typing import Any, Final

from torch import Tensor, nn

MAX_OBJECTS: Final = 512
"""Objects visited in one value: a list of thousands of tensors is data, not a module's output."""

_PLAIN: Final = (str, bytes, int, float, complex, type(None))
_NOT_A_RESULT: Final = (type, ModuleType, nn.Module)


def nodes_of(value: Any, *, attributes: bool = False) -> Sequence[Any]:
    """Return the ``grad_fn`` of the tensors of ``tensors_of``."""
    return [node for tensor in tensors_of(value, attributes=attributes) if (node := tensor.grad_fn) is not None]


def tensors_of(value: Any, *, attributes: bool = False) -> Sequence[Tensor]:
    """Return the tensors in nested tuples, lists, mappings and dataclasses, in their order.

    With ``attributes`` those in the attributes of other objects are found too.
    """
    if isinstance(value, Tensor):
        return (value,)
    found: list[Tensor] = []
    _collect((value,), attributes, found, set())
    return found


def _collect(values: Iterable[Any], attributes: bool, found: list[Tensor], seen: set[int]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif not isinstance(value, _PLAIN) and id(value) not in seen and len(found) + len(seen) < MAX_OBJECTS:
            seen.add(id(value))
            _collect(_inside(value, attributes), attributes, found, seen)


def _inside(item: Any, attributes: bool) -> Iterable[Any]:
    if isinstance(item, (tuple, list)):
        return item
    if isinstance(item, Mapping):
        return item.values()
    if hasattr(type(item), "__dataclass_fields__"):
        return [getattr(item, name, None) for name in type(item).__dataclass_fields__]
    if not attributes or callable(item) or isinstance(item, _NOT_A_RESULT):
        return ()
    if isinstance(item, (set, frozenset)):
        return item
    slots = [getattr(item, name, None) for kind in type(item).__mro__ for name in _slots(kind)]
    return [*slots, *getattr(item, "__dict__", {}).values()]


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def phrase_shapes(values: Mapping[str, Any]) -> str:
    """Phrase the shapes of the first tensors with the path to each: ``rgb [1,4,3], features[2] [1,8]``."""
    named = [f"{path} {shape}" if path else shape for path, shape in islice(_shapes(values, 0, ""), 12)]
    return ", ".join(named) or "no tensor"


def _shapes(value: Any, depth: int, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Tensor):
        # A size that is no integer is that of a ragged tensor.
        yield path, f"[{','.join(str(size) if isinstance(size, int) else '?' for size in value.shape)}]"
    elif depth > 6:
        return
    elif isinstance(value, (tuple, list)):
        for at, item in enumerate(value):
            yield from _shapes(item, depth + 1, f"{path}[{at}]")
    elif isinstance(value, Mapping) or hasattr(type(value), "__dataclass_fields__"):
        names = value if isinstance(value, Mapping) else type(value).__dataclass_fields__
        for name, item in zip(names, _inside(value, False), strict=True):
            yield from _shapes(item, depth + 1, f"{path}.{name}" if path else str(name))
