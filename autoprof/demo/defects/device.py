"""Defects of a device: on a machine without one they run on the fake device of ``autoprof.testing``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...summary import Summary
from ...testing import FakeClock, FakeDevice
from .models import CONFIG, MS, Layer, four, train


def launches(broken: bool) -> Summary:
    clock = FakeClock()
    device = FakeDevice(clock)
    model = four(clock, device=device, forward_ms=0.5 if broken else 60)
    for layer in model:
        assert isinstance(layer, Layer)
        layer.launch_ns = 20 * MS if broken else 1 * MS
    return train(model, clock, device=device, each_ms=0.01, wait_ms=0.1)


class Reading(nn.Module):
    """A layer after which the host looks at a value on the device, to act on it."""

    def __init__(self, layer: nn.Module, device: FakeDevice) -> None:
        super().__init__()
        self.layer = layer
        self.device = device

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        peak = self.device.value(x.abs().max())
        if peak > 1e6:
            x = x / 1e6
        return x


def reading(broken: bool) -> Summary:
    """Ask after each layer for a value that a branch depends on; the twin reads one value, at the end of the step."""
    clock = FakeClock()
    device = FakeDevice(clock)
    layers = list(four(clock, device=device, forward_ms=10))
    for layer in layers:
        assert isinstance(layer, Layer)
        layer.launch_ns = 8 * MS

    def read(_number: int) -> None:
        if not broken:
            device.value(torch.ones(())).item()

    model = nn.Sequential(*(Reading(layer, device) if broken else layer for layer in layers))
    return train(model, clock, device=device, each_ms=0.01, wait_ms=0.1, in_step=read, config=CONFIG)
