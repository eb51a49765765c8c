"""Defects of how work is done. It is counted from the model; what a device makes of it is told from the tables."""
# mypy: allow-untyped-calls
# (FakeDevice is without types of its own.)

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ..._metrics.flops import Kind
from ..._metrics.utilization import peak_seconds
from ...devices import Tf32Flags, find_peak
from ...devices.cuda import PEAKS
from ...diagnose import Evidence, Facts, diagnose
from ...summary import Summary, Work
from ...testing import FakeClock, FakeDevice
from .models import CONFIG, train

DEVICE: Final = "NVIDIA A10"
"""31.2 TFLOP/s in 32 bits, 125 in 16: a small model already takes it some microseconds."""
STEP_NS: Final = 50_000
WIDTH: Final = 512


def _run(model: nn.Module, batch: Tensor) -> Summary:
    """Train on the fake device, each step as long as the other; the work is counted."""
    clock = FakeClock()
    device = FakeDevice(clock)

    def compute() -> None:
        device.work(STEP_NS)

    return train(
        model, clock, device=device, steps=24, each_ms=0, wait_ms=0, take=lambda _batch: batch, before_update=compute,
        config={**CONFIG, "targets": [{"match": r"\d"}]}, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
    )  # fmt: skip


def _told(summary: Summary, work: Work) -> Summary:
    """Judge the run as one on a device of which more is known."""
    return diagnose(Evidence(replace(summary, work=work, findings=()), Facts(budget=0.01), longest=()))


class Autocast(nn.Module):
    """Two layers, with autocast or without."""

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.enabled = enabled

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enabled):
            y: Tensor = self.layers(x)
        return y.float()


def full_precision(broken: bool) -> Summary:
    """Compute in 32 bits what keeps the device's units busy half of the step; the twin casts to 16."""
    summary = _run(nn.Sequential(Autocast(not broken)), torch.randn(256, WIDTH))
    work = summary.work
    assert work is not None
    peak, _ = find_peak(DEVICE, PEAKS)
    kinds = []
    for kind in work.kinds:
        seconds = peak_seconds(Kind(kind.dtype, "matmul"), kind.flops, peak, Tf32Flags(matmul=False, conv=False))
        now, half = (None if one is None else one * 1e9 for one in seconds)
        kinds.append(replace(kind, peak_ns=now, half_ns=half))
    used = sum(kind.peak_ns or 0 for kind in kinds) / summary.step_p50_ns
    return _told(summary, replace(work, kinds=tuple(kinds), mfu=used, hfu=used, peak=DEVICE, no_peak=None))


class Attention(nn.Module):
    """One head: its scores written out, or left to torch."""

    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unsqueeze(1).chunk(3, -1)
        if self.fused:
            return scaled_dot_product_attention(query, key, value).squeeze(1)
        scores = query @ key.transpose(-1, -2) / sqrt(query.shape[-1])
        return (scores.softmax(-1) @ value).squeeze(1)  # type: ignore[no-any-return]


def written_attention(broken: bool) -> Summary:
    return _run(nn.Sequential(Attention(16, fused=not broken)), torch.randn(2, 64, 16))


def untried_convolutions(broken: bool) -> Summary:
    """Convolve ever the same shapes, on a device whose cuDNN may not try its algorithms out; its twin's may."""
    summary = _run(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), torch.randn(2, 3, 16, 16))
    work: Any = summary.work
    return _told(summary, replace(work, benchmark=not broken))
