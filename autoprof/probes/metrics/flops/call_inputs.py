"""The arguments of a call as shapes: enough to repeat the call on fake tensors, without keeping any tensor alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ....devices import DEVICES
from .flop_count import Uncountable

MAX_ARGUMENTS: Final = 4096
"""A call with more values has data among its arguments, and is not counted."""

_PLAIN = (
    str, bytes, int, float, complex, type(None), slice, range, Enum, np.generic,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip


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
class ModelCall:
    """A call of the model: its arguments as a structure and a description of each value, and the state it found."""

    leaves: tuple[Any, ...]
    structure: TreeSpec
    grad: bool = True
    training: bool = True
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    trained: tuple[bool, ...] = ()
    """For each parameter whether it got a gradient."""
    backward: bool = True
    """Whether the step had a backward pass through the call."""
    part: str = ""
    """The fqn of the called module in the model: empty for the model itself."""


def trained_parameters(module: nn.Module) -> tuple[bool, ...]:
    """Return for each parameter whether it gets a gradient."""
    return tuple([parameter.requires_grad for parameter in module.parameters()])


def autocast_types() -> list[str]:
    """Return the device types with autocast switched on, those of other packages included."""
    types = dict.fromkeys(
        ("cpu", "cuda", "xpu", "mps", *(name for kind in DEVICES.parts.values() for name in kind.types))
    )
    return [name for name in types if _autocast_enabled(name)]


def _autocast_enabled(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except RuntimeError:  # this build has no autocast for that device type
        return False


def describe(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> ModelCall:
    """Describe a call of this module that begins now, without keeping a tensor or reading from the device."""
    leaves, structure = tree_flatten((args, dict(kwargs or {})))
    if len(leaves) > MAX_ARGUMENTS:
        leaves, structure = tree_flatten((Opaque(f"more than {MAX_ARGUMENTS} values"),))
    grad, casts = torch.is_grad_enabled(), tuple((one, torch.get_autocast_dtype(one)) for one in autocast_types())
    trained = trained_parameters(module)
    found = tuple(map(_describe, leaves))
    return ModelCall(found, structure, grad, module.training, casts, trained, backward=module.training and grad)


def rebuild(call: ModelCall, tensor: Callable[[TensorSpec], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Rebuild the arguments, with ``tensor`` for each tensor; ``Uncountable`` where that is impossible."""
    leaves = []
    for leaf in call.leaves:
        if isinstance(leaf, Opaque):
            raise Uncountable(f"an argument is {leaf.description}, with unknown shapes")
        leaves.append(tensor(leaf) if isinstance(leaf, TensorSpec) else leaf)
    args, kwargs = tree_unflatten(leaves, call.structure)
    return args, kwargs


def _describe(value: Any) -> Any:
    if isinstance(value, (Opaque, *_PLAIN)):
        return value
    if not isinstance(value, Tensor):
        return Opaque(f"a {type(value).__module__}.{type(value).__qualname__}")
    if type(value) not in (Tensor, nn.Parameter):
        return Opaque(f"a tensor of class {type(value).__qualname__}")
    if value.is_quantized:
        return Opaque("a quantized tensor")
    if value.layout is not torch.strided or value.is_nested:
        return Opaque(f"a tensor of layout {value.layout}")
    return TensorSpec(tuple(value.shape), value.dtype, value.device, value.requires_grad)
