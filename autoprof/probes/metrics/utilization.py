"""MFU and HFU: the fractions of a device's peak FLOP/s that a model uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...base.units import NS_PER_S
from ...devices import Arithmetic, Peak, Tf32Flags
from .flops.flop_count import HARDWARE_PHASES, MODEL_PHASES, FlopCount, Kind

_BY_DTYPE: Final[Mapping[str, Arithmetic]] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
}


class Utilization(NamedTuple):
    """Fractions of the peak; None where no figure is possible, with the reason if the peak is known."""

    mfu: float | None = None
    """Of the model's FLOPs, forward and backward: recompute does not count (Chowdhery et al. 2022)."""
    hfu: float | None = None
    """Of all FLOPs of the device, recompute included."""
    model_flops_per_s: float | None = None
    """Of forward and backward; needs no peak."""
    reason: str | None = None


def arithmetic(kind: Kind, flags: Tf32Flags, peak: Peak) -> Arithmetic | None:
    """Return the arithmetic in which a device computes this kind; None where it has no peak for it."""
    chosen = _BY_DTYPE.get(kind.dtype)
    if chosen == "fp32" and "tf32" in peak.tflops and (flags.conv if kind.family == "conv" else flags.matmul):
        return "tf32"
    return chosen if chosen in peak.tflops else None


def utilization(work: FlopCount, duration_ns: float, peak: Peak | None, flags: Tf32Flags) -> Utilization:
    """Return MFU and HFU of one device over a duration.

    Each kind of arithmetic has its own peak: the figure is the time at the device's peaks over the duration. A figure
    above one is impossible and gives a reason instead.
    """
    if not duration_ns > 0:
        return Utilization(reason=f"no time to divide by: {duration_ns:g} ns")
    seconds = duration_ns / NS_PER_S
    rate = (work.flops(MODEL_PHASES) or 0) / seconds
    if peak is None:
        return Utilization(model_flops_per_s=rate)
    unknown = [kind.dtype for kind in work.kinds() if arithmetic(kind, flags, peak) is None]
    if unknown:
        return Utilization(model_flops_per_s=rate, reason=f"no peak of the device is known for {unknown[0]}")
    mfu, hfu = (
        sum(peak_seconds(kind, flops, peak, flags)[0] or 0.0 for kind, flops in work.kinds(phases).items()) / seconds
        for phases in (MODEL_PHASES, HARDWARE_PHASES)
    )
    if hfu > 1:
        reason = f"{hfu:.2f} of the peak is impossible: a type, a count or a time is wrong"
        return Utilization(model_flops_per_s=rate, reason=reason)
    return Utilization(mfu, hfu, rate)


def peak_seconds(kind: Kind, flops: int, peak: Peak | None, flags: Tf32Flags) -> tuple[float | None, float | None]:
    """Return the seconds of these FLOPs at the device's peak, as computed and in 16 bits; None without a peak."""
    if peak is None:
        return None, None
    chosen, half = arithmetic(kind, flags, peak), peak.tflops.get("bf16", peak.tflops.get("fp16"))
    now = None if chosen is None else flops / (peak.tflops[chosen] * 1e12)
    return now, None if half is None else flops / (half * 1e12)
