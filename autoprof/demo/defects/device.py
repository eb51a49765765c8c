"""Defects of a device: on a machine without one they run on the fake device of ``autoprof.testing``."""
# mypy: allow-untyped-calls
# (torch leaves Tensor.__torch_function__ without types.)

from __future__ import annotations

from typing import Any

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


class HostBatch(Tensor):
    """A batch in host memory, whose way to the fake device takes ``copy_ns``; from pageable memory the host waits."""

    fake: FakeDevice
    copy_ns: int
    pageable: bool

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") != "to":
            return super().__torch_function__(func, types, args, kwargs)
        batch = args[0]
        batch.fake.work(batch.copy_ns)
        if batch.pageable:
            batch.fake.wait_here()
        with torch._C.DisableTorchFunctionSubclass():
            return batch.as_subclass(Tensor)  # the fake device's values lie on the host


def copying(broken: bool) -> Summary:
    """Copy large batches from pageable memory; the twin copies small ones from pinned memory."""
    clock = FakeClock()
    device = FakeDevice(clock)
    model = four(clock, device=device)

    def take(values: Tensor) -> Tensor:
        batch = values.as_subclass(HostBatch)
        batch.fake, batch.copy_ns, batch.pageable = device, 120 * MS if broken else 2 * MS, broken
        return batch.to("meta", non_blocking=not broken)

    return train(model, clock, device=device, each_ms=0.01, wait_ms=0.1, take=take)
