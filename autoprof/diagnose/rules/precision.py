"""Rule ``precision``: float32 arithmetic fills the step, on a device that is several times as fast in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..._stats.intervals import Interval
from ..._units import format_ms, format_percent
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._rule import Defect, Rule
from .._thresholding import ExceededBound, abstain, threshold_time
from .._work import counted_work

if TYPE_CHECKING:
    from torch import Tensor

MAX_SHARE: Final = 0.25
"""Time at float32's own peak over the step. Work that is no arithmetic makes the step longer than its time at the
peak, so from a quarter on arithmetic is a good part of it."""
_FLOAT32 = "float32"


def judge(run: Evidence) -> Finding | None:
    """Judge the time that the float32 work takes even at the device's peak."""
    work = counted_work("precision", run)
    if isinstance(work, Finding):
        return work
    if work.peak is None or work.mfu is None:
        missing = f"the device's peak: {work.no_peak}" if work.no_peak else "the device's peak"
        return abstain("precision", missing, "nothing to do when the model trains on the CPU")
    kinds = [kind for kind in work.kinds if kind.dtype == _FLOAT32]
    peak_ns = sum(kind.peak_ns or 0.0 for kind in kinds)
    half_ns = sum(kind.half_ns or 0.0 for kind in kinds)
    found = threshold_time("precision", run, Interval.exact(peak_ns), peak_ns, MAX_SHARE)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"matrix products and convolutions in float32 take at least {format_ms(peak_ns)} "
        f"({format_percent(found.mean_share)} of the step) even at this device's peak ({work.peak}); in 16 bits they "
        f"would take {format_ms(half_ns)} at the peak",
        "use torch.autocast around the forward and the loss, with bfloat16 if the device supports it (float16 also "
        "needs a GradScaler); or at least torch.set_float32_matmul_precision('high') if TF32 is off",
        gain_ns=peak_ns - half_ns,
        evidence={"half_ns": round(half_ns), "flops": sum(kind.flops for kind in kinds), "peak": work.peak},
    )


def train_in_float32(broken: bool) -> Summary:
    """Compute in 32 bits, which takes half of the step at the peak; the healthy twin computes in 16 bits.

    The work is counted from the model. The fake device has no peak, so that of an NVIDIA A10 is used: 31.2 TFLOP/s in
    32 bits, 125 in 16.
    """
    from dataclasses import replace

    import torch
    from torch import nn

    from ..._metrics.flops import Kind
    from ..._metrics.utilization import peak_seconds
    from ...demo.defects import diagnose_again, train_counted
    from ...devices import Tf32Flags, find_peak
    from ...devices.cuda import PEAKS

    device, width = "NVIDIA A10", 512

    class Autocast(nn.Module):
        """Two layers under autocast, which may be disabled."""

        def __init__(self, enabled: bool) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            self.enabled = enabled

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enabled):
                y: Tensor = self.layers(x)
            return y.float()

    summary = train_counted(nn.Sequential(Autocast(not broken)), torch.randn(256, width))
    work = summary.work
    assert work is not None
    peak, _ = find_peak(device, PEAKS)
    kinds = []
    for kind in work.kinds:
        seconds = peak_seconds(Kind(kind.dtype, "matmul"), kind.flops, peak, Tf32Flags(matmul=False, conv=False))
        peak_ns, half_ns = (None if one is None else one * 1e9 for one in seconds)
        kinds.append(replace(kind, peak_ns=peak_ns, half_ns=half_ns))
    used = sum(kind.peak_ns or 0 for kind in kinds) / summary.step_p50_ns
    return diagnose_again(
        summary, work=replace(work, kinds=tuple(kinds), mfu=used, hfu=used, peak=device, no_peak=None)
    )


RULE = Rule(
    "precision",
    judge,
    order=80,
    defects=(Defect("float32 instead of 16 bits", train_in_float32, "fake device"),),
    needs_device=True,
)
