"""The bytes of tensors as extents of their storages, so that shared bytes are counted once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...base.process.replace import never_compile


class Extent(NamedTuple):
    """Bytes ``start`` to ``end`` of one storage; its number is unique while a tensor refers to it."""

    storage: int
    start: int
    end: int


def extents(value: Any) -> Iterator[Extent]:
    """Yield the extents of all tensors in a value: a tensor, or nested containers such as an optimizer's state.

    A ``DTensor`` or another wrapper counts as the tensors it wraps (of a shard the local one), a sparse tensor as its
    indices and values; a ``meta`` tensor, a fake one and a lazy parameter have no bytes. Reads sizes only. Raises
    ``NotImplementedError`` for a layout without a visible storage.
    """
    if isinstance(value, Tensor):
        yield from _of_tensor(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from extents(part)
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        for part in value:
            yield from extents(part)


def _of_tensor(tensor: Tensor) -> Iterator[Extent]:
    if nn.parameter.is_lazy(tensor):
        return
    parts = _parts(tensor)
    if parts is not None:
        for part in parts:
            yield from _of_tensor(part)
        return
    word, storage = tensor.element_size(), tensor.untyped_storage()
    if storage.device.type == "meta" or not tensor.nelement():
        return
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.storage_offset()) * word
    end = min(start + (int(last) + 1) * word, storage.nbytes())  # FSDP frees the storage of a tensor that stays
    if end > start:
        yield Extent(storage._cdata, start, end)


never_compile(_of_tensor)  # called by an optimizer's step in a compiled function, it became a graph of its own


def _parts(tensor: Tensor) -> list[Tensor] | None:
    """Return the tensors that this one wraps; None for an ordinary tensor."""
    if type(tensor) not in (Tensor, nn.Parameter) and hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        parts = (getattr(tensor, name) for name in names)
        return [part for part in parts if isinstance(part, Tensor)]  # a DTensor lists its mesh as well
    return [tensor._indices(), tensor._values()] if tensor.layout is torch.sparse_coo else None


def bytes_of(found: Iterable[Extent]) -> int:
    """Count the bytes of these extents, shared bytes once."""
    total, storage, reached = 0, None, 0
    for extent in sorted(found):
        if extent.storage != storage:
            storage, reached = extent.storage, 0
        if extent.end > reached:
            total += extent.end - max(extent.start, reached)
            reached = extent.end
    return total
