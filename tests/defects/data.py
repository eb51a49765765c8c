"""Defects of the loader and of the copies to the device."""
# mypy: allow-untyped-calls

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from autoprof.base.summary import Summary
from autoprof.testing import FakeClock, FakeDevice, open_session

from .training import CONFIG, MS, WIDTH, SlowSGD, four_layers, train


def train_with_slow_loader(broken: bool) -> Summary:
    """Wait half a second for each batch; the healthy twin waits 2 ms."""
    clock = FakeClock()
    return train(four_layers(clock), clock, wait_ms=500 if broken else 2)


def train_with_restarts(broken: bool) -> Summary:
    """Take a second and a half to start a worker for each epoch of six batches; the healthy twin keeps the worker."""
    clock = FakeClock()

    class SlowStart(DataLoader[Any]):
        """A loader whose worker takes this long to start."""

        def _get_iterator(self) -> Any:
            clock.advance(1_500 * MS)
            return super()._get_iterator()

    data = TensorDataset(torch.randn(24, WIDTH))
    loader = SlowStart(data, batch_size=4, num_workers=1, persistent_workers=not broken)
    model = four_layers(clock)
    optimizer = SlowSGD(model, clock, MS // 2)
    session = open_session(model, CONFIG, clock=clock, optimizer=optimizer)
    for _ in range(24):
        for (batch,) in loader:
            model(batch).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    session.close()
    return session.summary()


def train_with_pageable_copies(broken: bool) -> Summary:
    """Copy large batches from pageable memory; the healthy twin copies small ones from pinned memory."""
    clock = FakeClock()
    device = FakeDevice(clock)
    copy_ns = 120 * MS if broken else 2 * MS

    class HostBatch(torch.Tensor):
        """A batch in host memory; the host waits for its copy to the fake device if the memory is pageable."""

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") != "to":
                return super().__torch_function__(func, types, args, kwargs)
            device.work(copy_ns)
            if broken:
                device.wait_here()
            with torch._C.DisableTorchFunctionSubclass():
                return args[0].as_subclass(torch.Tensor)  # the fake device's values are in host memory

    def copy(values: Tensor) -> Tensor:
        return values.as_subclass(HostBatch).to("meta", non_blocking=not broken)

    return train(four_layers(clock, device=device), clock, device=device, each_ms=0.01, wait_ms=0.1, take=copy)
