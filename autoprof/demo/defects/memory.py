"""Small trainings on a fake allocator with a defect of memory each, and their healthy twins."""

from __future__ import annotations

import torch
from torch import nn

from ...summary import Summary
from ...testing import FakeAllocator, FakeClock
from .models import GIB, MEMORY_CONFIG, STEPS, WIDTH, Checkpointed, Layer, train


def _on(allocator: FakeAllocator, layers: list[Layer], each_bytes: int) -> list[Layer]:
    """Have the layers keep activations there."""
    for layer in layers:
        layer.allocator, layer.activation_bytes = allocator, each_bytes
    return layers


def needless_checkpointing(broken: bool) -> Summary:
    """Checkpointing on a device whose free memory holds all that it saves."""
    clock, allocator = FakeClock(), FakeAllocator(16 * GIB, base_bytes=GIB)
    layers = _on(allocator, [Layer(clock) for _ in range(4)], GIB)
    model = nn.Sequential(*(Checkpointed(one) if broken else one for one in layers))
    return train(model, clock, config=MEMORY_CONFIG, memory=allocator)


def pieces(broken: bool) -> Summary:
    """Sequences that grow longer leave a cache of blocks that are all too short; in order of length they do not."""
    clock, allocator = FakeClock(), FakeAllocator(80 * GIB, base_bytes=GIB)
    layers = _on(allocator, [Layer(clock) for _ in range(4)], GIB)

    def next_length(number: int) -> None:
        length = GIB * (1 + number / STEPS) if broken else GIB
        _on(allocator, layers, round(length))

    return train(nn.Sequential(*layers), clock, config=MEMORY_CONFIG, memory=allocator, in_step=next_length)


def large_state(broken: bool) -> Summary:
    """Adam's state on a device that it fills, or on one with room to spare."""
    clock = FakeClock()
    layers = [Layer(clock) for _ in range(4)]
    for layer in layers:
        layer.linear = nn.Linear(WIDTH, 128 * WIDTH)
    model = nn.Sequential(*layers)
    for layer in layers[1:]:
        layer.linear = nn.Linear(128 * WIDTH, 128 * WIDTH)
    parameters = sum(one.nbytes for one in model.parameters())
    allocator = FakeAllocator((5 if broken else 40) * parameters, base_bytes=4 * parameters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return train(model, clock, steps=16, config=MEMORY_CONFIG, memory=allocator, optimizer=optimizer)
