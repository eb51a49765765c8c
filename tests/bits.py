"""Tensors, whatever holds them, and text that is equal exactly when their bits are."""

import hashlib
import pickle
import random
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

DEPTH: Final = 12
"""How deep outputs are looked into: deeper than autoprof itself looks."""


def tensors_in(value: Any, depth: int = DEPTH, path: tuple[int, ...] = ()) -> Iterator[Tensor]:
    """Yield every tensor of a value: in containers, and in the attributes of any object that is no module."""
    if isinstance(value, Tensor):
        yield value
        return
    if not depth or id(value) in path or value is None or isinstance(value, (str, bytes, int, float, type, nn.Module)):
        return
    if isinstance(value, Mapping):
        inside: Any = list(value.values())
    elif isinstance(value, (tuple, list, set, frozenset)):
        inside = value
    elif hasattr(value, "__dict__") and not callable(value):
        inside = list(vars(value).values())
    elif hasattr(type(value), "__slots__") and hasattr(type(value), "__dataclass_fields__"):
        inside = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
    else:
        return
    for item in inside:
        yield from tensors_in(item, depth - 1, (*path, id(value)))


def bits(tensor: Tensor) -> str:
    """Return type, shape, memory layout and a digest of the values of a tensor."""
    needs_grad, tensor = tensor.requires_grad, tensor.detach()
    kind = f"{type(tensor).__name__} {tensor.dtype} {tensor.layout} {needs_grad}"
    if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        return f"{kind} uninitialised"
    if tensor.is_nested:
        return f"{kind} {[bits(part) for part in tensor.unbind()]}"
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return f"{kind} {bits(tensor.indices())} {bits(tensor.values())}"
    if tensor.layout is torch.sparse_csr:
        return f"{kind} {bits(tensor.crow_indices())} {bits(tensor.col_indices())} {bits(tensor.values())}"
    if tensor.is_quantized:
        return f"{kind} {tensor.qscheme()} {bits(tensor.int_repr())}"
    kind += f" {tuple(tensor.shape)} {tensor.stride()}"
    plain = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).cpu()
    data = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return f"{kind} {hashlib.blake2b(data, digest_size=12).hexdigest()}"


def describe(value: Any, depth: int = 8) -> Any:
    """Return a value with its tensors as ``bits``, its containers as they nest, and the types of all the rest."""
    name = type(value).__name__
    if isinstance(value, Tensor):
        return bits(value)
    if value is None or isinstance(value, (str, bytes, bool, int, float, torch.dtype, torch.Size)):
        return repr(value)
    if not depth:
        return name
    if isinstance(value, Mapping):
        return name, [(str(key), describe(item, depth - 1)) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return name, [describe(item, depth - 1) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return name, [(field.name, describe(getattr(value, field.name, None), depth - 1)) for field in fields(value)]
    return name


def random_states() -> tuple[str, ...]:
    """Return the states of the generators of torch, Python and numpy."""
    return (
        bits(torch.get_rng_state()),
        hashlib.blake2b(pickle.dumps(random.getstate())).hexdigest(),
        hashlib.blake2b(pickle.dumps(np.random.get_state())).hexdigest(),
    )
