"""Tensors and whatever holds them as text that is equal exactly when the bits are."""

from __future__ import annotations

import hashlib
import pickle
import random
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def bits(tensor: Tensor) -> str:
    """Return type, shape, memory layout and a digest of the values of a tensor."""
    tensor = tensor.detach()
    kind = f"{type(tensor).__name__} {tensor.dtype} {tensor.layout}"
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
