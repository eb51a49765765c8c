"""Kernels of known length: ``torch.cuda._sleep``, its cycles calibrated with the device's events."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor, nn

Sleep = Callable[[float], None]
"""Keep the device busy for so many nanoseconds."""

SHORT_CYCLES: Final = 2_000_000
LONG_CYCLES: Final = 12_000_000
REPETITIONS: Final = 9
WARMUP: Final = 30
"""Sleeps before any counts: an idle device's clock takes a fraction of a second to reach its speed."""


def _sleep(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def slept_ns(cycles: int) -> float:
    """Return how long the device sleeps for so many cycles, by events written by hand. Waits for the device."""
    start, end = _event(), _event()
    start.record()
    _sleep(cycles)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e6


def calibrate() -> Sleep:
    """Return ``sleep(ns)``. The slope between two lengths excludes the cost of a launch and an event."""
    for _ in range(WARMUP):
        slept_ns(LONG_CYCLES)
    short = median(slept_ns(SHORT_CYCLES) for _ in range(REPETITIONS))
    long = median(slept_ns(LONG_CYCLES) for _ in range(REPETITIONS))
    cycles_per_ns = (LONG_CYCLES - SHORT_CYCLES) / (long - short)
    return lambda ns: _sleep(round(ns * cycles_per_ns))


class _SleepBackward(torch.autograd.Function):
    """Pass the value on; sleep on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sleep: Sleep, ns: float) -> Tensor:
        ctx.sleep, ctx.ns = sleep, ns
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        ctx.sleep(ctx.ns)
        return grads[0], None, None


class Sleeper(nn.Module):
    """Keep the device busy for a known time in forward and for another in backward."""

    def __init__(self, sleep: Sleep, forward_ns: float, backward_ns: float) -> None:
        super().__init__()
        self.sleep, self.forward_ns, self.backward_ns = sleep, forward_ns, backward_ns

    def forward(self, x: Tensor) -> Tensor:
        """Return a copy of ``x``, later."""
        self.sleep(self.forward_ns)
        slept: Tensor = _SleepBackward.apply(x, self.sleep, self.backward_ns)  # type: ignore[no-untyped-call]
        return slept
