"""The arguments of a call as shapes: enough to repeat the call on fake tensors, without keeping any object alive."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from ...devices import DEVICES
from .flop_count import Uncountable

DEPTH: Final = 8
"""Nesting depth of containers that is read."""
ITEMS: Final = 4096
"""Values read in one call; a larger number is data, not arguments."""

_PLAIN = (
    str, bytes, int, float, complex, type(None), slice, range, Enum, np.generic,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip
_NUMBERS = (int, float, complex, np.generic)
_AUTOCAST_TYPES = ("cpu", "cuda", "xpu", "mps")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value with unknown shapes; a call with one is not countable."""

    description: str


@dataclass(frozen=True, slots=True)
class Container:
    """A tuple, list, mapping or dataclass: its class, its keys (of a mapping or dataclass) and its items."""

    made_by: type[Any]
    keys: tuple[Any, ...] | None
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The description of one call's arguments."""

    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()

    def key(self) -> Hashable:
        """Return the properties on which FLOPs depend: shapes, types, structure, strings, flags; not values of numbers.

        A model that takes the step's number as an argument is not counted at every step.
        """
        return tuple(map(_key, self.args)), tuple((name, _key(spec)) for name, spec in self.kwargs)


@dataclass(frozen=True, slots=True)
class Ambient:
    """The modes of a call on which its FLOPs depend: gradients, training, and autocast by device type."""

    grad: bool = True
    training: bool = True
    autocast: tuple[tuple[str, torch.dtype], ...] = ()


def ambient(module: nn.Module) -> Ambient:
    """Return the modes in force at a call of this module."""
    casts = tuple((device, torch.get_autocast_dtype(device)) for device in autocast_types())
    return Ambient(torch.is_grad_enabled(), module.training, casts)


def describe(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Inputs:
    """Describe the arguments of a call without keeping a tensor or reading from the device."""
    budget = [ITEMS]
    described = tuple(_describe(value, DEPTH, budget) for value in args)
    if not kwargs:
        return Inputs(described)
    return Inputs(described, tuple((name, _describe(value, DEPTH, budget)) for name, value in kwargs.items()))


def rebuild(inputs: Inputs, tensor: Callable[[TensorSpec], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Rebuild the arguments, with ``tensor`` for each tensor; ``Uncountable`` where that is impossible."""
    args = tuple(_rebuild(spec, tensor) for spec in inputs.args)
    return args, {name: _rebuild(spec, tensor) for name, spec in inputs.kwargs}


def autocast_types() -> list[str]:
    """Return the device types with autocast switched on: of torch's own types, and of devices of other packages."""
    types = dict.fromkeys((*_AUTOCAST_TYPES, *(name for kind in DEVICES.parts.values() for name in kind.types)))
    return [name for name in types if _autocast_enabled(name)]


def _autocast_enabled(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except RuntimeError:  # this build has no autocast for that device type
        return False


def _describe(value: Any, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        return Opaque(f"more than {ITEMS} values")
    if isinstance(value, Tensor):
        return _describe_tensor(value)
    if isinstance(value, _PLAIN):
        return value
    if depth == 0:
        return Opaque(f"containers more than {DEPTH} deep")
    cls = type(value)
    if isinstance(value, (tuple, list)):
        return Container(cls, None, tuple(_describe(item, depth - 1, budget) for item in value))
    if isinstance(value, Mapping):
        keys = tuple(value)
        if not all(isinstance(key, _PLAIN) for key in keys):
            return Opaque(f"a {cls.__name__} with keys that are objects")
        return Container(cls, keys, tuple(_describe(value[key], depth - 1, budget) for key in keys))
    if is_dataclass(cls):
        names = tuple(field.name for field in fields(cls) if field.init)
        return Container(cls, names, tuple(_describe(getattr(value, name), depth - 1, budget) for name in names))
    return Opaque(f"a {cls.__module__}.{cls.__qualname__}")


def _describe_tensor(value: Tensor) -> TensorSpec | Opaque:
    if type(value) not in (Tensor, nn.Parameter):
        return Opaque(f"a tensor of class {type(value).__qualname__}")
    if value.layout is not torch.strided or value.is_nested or value.is_quantized:
        return Opaque(f"a tensor of layout {value.layout}" if not value.is_quantized else "a quantized tensor")
    return TensorSpec(tuple(value.shape), value.dtype, value.device, value.requires_grad)


def _rebuild(spec: Any, tensor: Callable[[TensorSpec], Any]) -> Any:
    if isinstance(spec, TensorSpec):
        return tensor(spec)
    if isinstance(spec, Opaque):
        raise Uncountable(f"an argument is {spec.description}, with unknown shapes")
    if not isinstance(spec, Container):
        return spec
    items = [_rebuild(item, tensor) for item in spec.items]
    try:
        if spec.keys is not None and is_dataclass(spec.made_by):
            return spec.made_by(**dict(zip(spec.keys, items, strict=True)))
        if spec.keys is not None:
            return spec.made_by(dict(zip(spec.keys, items, strict=True)))
        return spec.made_by(*items) if hasattr(spec.made_by, "_fields") else spec.made_by(items)
    except Exception as error:
        raise Uncountable(f"an argument of class {spec.made_by.__qualname__} cannot be rebuilt: {error}") from error


def _key(spec: Any) -> Hashable:
    if isinstance(spec, Container):
        return spec.made_by, spec.keys, tuple(map(_key, spec.items))
    if isinstance(spec, slice):  # not hashable before Python 3.12
        return slice, spec.start, spec.stop, spec.step
    if isinstance(spec, _NUMBERS) and not isinstance(spec, (bool, Enum)):
        return type(spec).__name__
    hashed: Hashable = spec
    return hashed
