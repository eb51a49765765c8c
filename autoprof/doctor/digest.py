"""Hashes of the bits of a step, so that two runs can be compared without keeping either in memory."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..devices import Device, ask_devices

Digests = dict[str, str]


def leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of nested tuples, lists, mappings and dataclasses with the path to it: ``[0].logits``."""
    inside: Any = None
    # The depth is limited, because a container may hold itself.
    if depth < 20 and not isinstance(value, Tensor):
        if isinstance(value, Mapping):
            inside = ((f"{path}[{key!r}]", item) for key, item in value.items())
        elif isinstance(value, (tuple, list)):
            inside = ((f"{path}[{i}]", item) for i, item in enumerate(value))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            inside = ((f"{path}.{field.name}", getattr(value, field.name, None)) for field in fields)
    if inside is None:
        yield path, value
        return
    for name, item in inside:
        yield from leaves(item, name, depth + 1)


def digest_output(output: Any) -> Digests:
    """Digest every tensor and every plain value of an output; other objects have no bits to compare."""
    found: Digests = {}
    for path, leaf in leaves(output):
        if isinstance(leaf, Tensor):
            found[f"output{path}"] = digest(leaf)
        elif leaf is None or isinstance(leaf, (bool, int, float, complex, str, bytes)):
            found[f"output{path}"] = repr(leaf)
    return found


def digest_gradients(model: nn.Module) -> Digests:
    """Digest the gradient of every parameter that has one."""
    named = model.named_parameters()
    return {f"gradient of {name}": digest(weight.grad) for name, weight in named if weight.grad is not None}


def digest_state(model: nn.Module) -> Digests:
    """Digest every parameter and buffer."""
    parameters = {f"parameter {name}": digest(weight) for name, weight in model.named_parameters()}
    return parameters | {f"buffer {name}": digest(buffer) for name, buffer in model.named_buffers()}


def digest_random() -> Digests:
    """Digest the random state of torch on every device, of numpy and of Python."""
    state = RandomState.read()
    found = {"random state of torch": digest(state.cpu)}
    for _, states in state.devices:
        found |= {f"random state of {name}": digest(one) for name, one in states.items()}
    found["random state of numpy"] = _hash(pickle.dumps(state.numpy))
    found["random state of Python"] = _hash(repr(state.python).encode())
    return found


def digest(tensor: Tensor) -> str:
    """Return a hash of the tensor's type, shape and bits; a tensor without bits (``meta``) has type and shape."""
    with torch.no_grad():
        parts = [f"{tensor.dtype} {tensor.layout} {tuple(tensor.shape) if not tensor.is_nested else ''}".encode()]
        if tensor.device.type != "meta":
            parts += [_bits(part) for part in _dense(tensor.detach())]
    return _hash(*parts)


def _dense(tensor: Tensor) -> list[Tensor]:
    """Return plain tensors that hold all bits of a tensor of any layout."""
    local: Any = getattr(tensor, "to_local", None)  # a DTensor: each rank compares its own shard
    if local is not None:
        return [local()]
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout is not torch.strided:
        return [tensor.to_dense()]
    return [tensor.int_repr()] if tensor.is_quantized else [tensor]


def _bits(tensor: Tensor) -> bytes:
    plain = tensor.resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _hash(*parts: bytes) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class RandomState:
    """The state of every generator that a model is likely to draw from."""

    cpu: Tensor
    devices: tuple[tuple[Device, Mapping[str, Tensor]], ...]
    numpy: Any
    python: Any

    @classmethod
    def read(cls) -> RandomState:
        """Read the states; a device that this process does not use is not initialised for it."""
        devices = tuple(one for one in ask_devices(lambda device: device.random_states()) if one[1])
        return cls(torch.get_rng_state(), devices, np.random.get_state(), random.getstate())

    def restore(self) -> None:
        """Set the generators to this state."""
        torch.set_rng_state(self.cpu)
        for device, states in self.devices:
            device.set_random_states(states)
        np.random.set_state(self.numpy)
        random.setstate(self.python)
