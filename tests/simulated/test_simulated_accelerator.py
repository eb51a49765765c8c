"""The simulated accelerator itself: tensors, streams, events, devices, backward threads, memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from simulated_accelerator import Simulated

MS = 1_000_000
KERNEL_NS = 5_000


def event() -> torch.Event:
    return torch.Event(device="sim", enable_timing=True)


def elapsed_ns(start: torch.Event, end: torch.Event) -> int:
    end.synchronize()
    return round(start.elapsed_time(end) * 1e6)


def test_the_host_runs_ahead_of_the_device(sim: Simulated) -> None:
    """Launches return at once; reading a value waits for what is in front of it."""
    with sim.stopped_clock():
        began_ns, launched = sim.now_ns(), event()
        sim.sleep(300 * MS)
        value = torch.ones(3, device="sim").sum()
        launched.record()
        assert not launched.query()
        assert sim.now_ns() == began_ns
        waits = sim.waits
        assert value.item() == 3
        assert sim.waits == waits + 1
        assert launched.query()
        assert sim.now_ns() == began_ns + 300 * MS + 2 * KERNEL_NS


def test_a_kernel_has_exactly_its_length(sim: Simulated) -> None:
    """By the device's own events, whatever else the machine does; behind a hold there are no gaps."""
    start, middle, end = event(), event(), event()
    x = torch.ones(3, device="sim")
    with sim.held():
        start.record()
        sim.sleep(2 * MS)
        middle.record()
        x.add_(1).mul_(2)
        end.record()
    assert elapsed_ns(start, middle) == 2 * MS
    assert elapsed_ns(middle, end) == 10_000


def test_backward_runs_on_a_thread_of_its_device_and_on_the_forwards_stream(sim: Simulated) -> None:
    """As on a GPU: not on the thread that called it."""
    seen: list[tuple[int, int, int]] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            stream = torch.accelerator.current_stream()
            seen.append((threading.get_ident(), torch.accelerator.current_device_index(), stream.stream_id))
            return grad

    side = torch.Stream(device="sim:1")
    x = torch.ones(1, device="sim:1", requires_grad=True)
    with side:
        Look.apply(x).sum().backward()
    ((thread, device, stream),) = seen
    assert thread != threading.get_ident()
    assert (device, stream) == (1, side.stream_id)
    assert torch.accelerator.current_device_index() == 0
