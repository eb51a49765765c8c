"""The simulated accelerator itself: tensors, streams, events, devices, backward threads, memory."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from simulated_accelerator import Simulated

MS = 1_000_000


def event() -> torch.Event:
    return torch.Event(device="sim", enable_timing=True)


def elapsed_ns(start: torch.Event, end: torch.Event) -> int:
    end.synchronize()
    return round(start.elapsed_time(end) * 1e6)


def test_operators_have_the_cpus_results(sim: Simulated) -> None:
    """Products, convolutions, indices, results of several tensors."""
    x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    for work in (
        lambda x, w: x @ x.transpose(-1, -2),
        lambda x, w: nn.functional.conv2d(x, w, padding=1),
        lambda x, w: x.flatten(1).sort(1)[0],
        lambda x, w: x[x > 0],
        lambda x, w: torch.cat([x, x * 2]).permute(3, 0, 1, 2).contiguous(),
        lambda x, w: nn.functional.layer_norm(x, (8,)),
        lambda x, w: nn.functional.mse_loss(x, x.flip(0)),
        lambda x, w: nn.functional.batch_norm(x, None, None, training=True),
        lambda x, w: nn.functional.batch_norm(x, w[0, :, 0, 0], w[0, :, 0, 1].abs(), training=False),
        lambda x, w: torch.mul(x, 2, out=x.new_empty(0)),
        lambda x, w: torch.topk(x, 2, out=(x.new_empty(2, 3, 8, 2), x.new_empty(0, dtype=torch.int64)))[0],
        lambda x, w: x.to(torch.bfloat16).float().clamp_(min=0).add_(1),
    ):
        assert torch.allclose(work(x.sim(), w.sim()).cpu(), work(x, w), atol=1e-6)


def test_the_host_runs_ahead_of_the_device(sim: Simulated) -> None:
    """Launches return at once; reading a value waits for what is in front of it."""
    began = perf_counter_ns()
    sim.sleep(300 * MS)
    value = torch.ones(3, device="sim").sum()
    assert perf_counter_ns() - began < 250 * MS
    waits = sim.waits
    assert value.item() == 3
    assert sim.waits == waits + 1
    assert perf_counter_ns() - began >= 300 * MS


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


def test_copies_wait_as_on_a_gpu(sim: Simulated) -> None:
    """Pinned and non-blocking: no wait; else one. From device to device: none."""
    pinned = torch.arange(1000.0).pin_memory()
    assert pinned.is_pinned()
    before = sim.waits
    there = pinned.to("sim", non_blocking=True)
    other = there.to("sim:2")
    assert sim.waits == before
    pinned.to("sim")
    assert sim.waits == before + 1
    assert torch.equal(other.cpu(), pinned)
    assert sim.waits == before + 2


def test_memory_is_counted_and_bounded(sim: Simulated) -> None:
    """A tensor's bytes until it is dropped, its peak, and torch's own exception where there is no more."""
    torch.accelerator.reset_peak_memory_stats(2)
    before = torch.accelerator.memory_allocated(2)
    x = torch.empty(1 << 20, dtype=torch.uint8, device="sim:2")
    assert torch.accelerator.memory_allocated(2) == before + (1 << 20)
    del x
    assert torch.accelerator.memory_allocated(2) == before
    assert torch.accelerator.max_memory_allocated(2) == before + (1 << 20)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 40, dtype=torch.uint8, device="sim:2")
