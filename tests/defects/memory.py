"""Defects of memory: recompute that saves too little, state that fills it, leaks, fragmentation."""
# mypy: allow-untyped-calls

from typing import Any

from torch import nn

from autoprof.base.summary import Summary
from autoprof.testing import FakeClock
from tests.fake_memory import FakeAllocator

from .training import GIB, MEMORY_CONFIG, STEPS, Checkpointed, Layer, diagnose_again, four_layers, train


def train_checkpointed(broken: bool, allocator: FakeAllocator | None = None, **settings: Any) -> Summary:
    """Checkpoint every layer; the healthy twin checkpoints none. ``settings`` are those of ``train``."""
    clock = FakeClock()
    layers = [Layer(clock, allocator=allocator, activation_bytes=GIB) for _ in range(4)]
    model = nn.Sequential(*(Checkpointed(layer) if broken else layer for layer in layers))
    return train(model, clock, memory=allocator, **settings)


def train_checkpointed_with_free_memory(broken: bool) -> Summary:
    """Checkpoint on a device whose free memory holds everything that checkpointing saves."""
    return train_checkpointed(broken, FakeAllocator(16 * GIB, base_bytes=GIB), config=MEMORY_CONFIG)


def train_with_leak(broken: bool) -> Summary:
    """Keep 256 MiB of activations in each step; the healthy twin frees them."""
    clock, allocator = FakeClock(), FakeAllocator(80 * GIB, base_bytes=GIB)
    layers = [Layer(clock, allocator=allocator, activation_bytes=GIB) for _ in range(4)]

    def keep(_number: int) -> None:
        activation = allocator.allocate(GIB // 4)
        if not broken:
            allocator.free(activation)

    return train(nn.Sequential(*layers), clock, config=MEMORY_CONFIG, memory=allocator, in_step=keep)


def train_in_small_memory(broken: bool) -> Summary:
    """Train on a machine with 2 % more memory than the peak; the healthy twin has eight times the peak."""
    clock = FakeClock()
    summary = train(four_layers(clock), clock)
    peak = summary.memory["rss_peak_bytes"]
    return diagnose_again(summary, memory_capacity_bytes=round(peak * (1.02 if broken else 8)))


def train_with_growing_lengths(broken: bool) -> Summary:
    """Lengthen the sequences in each step, so that cached blocks are too short; the healthy twin keeps one length."""
    clock, allocator = FakeClock(), FakeAllocator(80 * GIB, base_bytes=GIB)
    layers = [Layer(clock, allocator=allocator, activation_bytes=GIB) for _ in range(4)]

    def next_length(number: int) -> None:
        for layer in layers:
            layer.activation_bytes = round(GIB * (1 + number / STEPS) if broken else GIB)

    return train(nn.Sequential(*layers), clock, config=MEMORY_CONFIG, memory=allocator, in_step=next_length)
