"""MFU and HFU: the fractions of a device's peak FLOP/s that a model uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .._core.units import NS_PER_S
from ..devices import Arithmetic, Peak, Tf32Flags
from ..frame import Phase
from .flops.flop_count import MODEL_PHASES, FlopCount, Kind

_BY_DTYPE: Final[Mapping[str, Arithmetic]] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
}


@dataclass(frozen=True, slots=True)
class Utilization:
    """Fractions of the peak; None, with the reason, where no figure is possible."""

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


def utilization(
    work: FlopCount,
    duration_ns: float,
    peak: Peak | None,
    flags: Tf32Flags,
    why_no_peak: str | None = None,
) -> Utilization:
    """Return MFU and HFU of one device over a duration: of the whole model.

    Each kind of arithmetic has its own peak: the figure is the time at the device's peaks over the duration. A figure
    above one is impossible and gives a reason instead.
    """
    if work.reason is not None:
        return Utilization(reason=work.reason)
    if not duration_ns > 0:
        return Utilization(reason=f"no time to divide by: {duration_ns:g} ns")
    seconds = duration_ns / NS_PER_S
    rate = (work.flops(MODEL_PHASES) or 0) / seconds
    if peak is None:
        return Utilization(model_flops_per_s=rate, reason=why_no_peak or "no peak is known for this device")
    model = _seconds_at_peak(work.kinds(MODEL_PHASES), peak, flags)
    recompute = _seconds_at_peak(work.kinds((Phase.RECOMPUTE,)), peak, flags)
    if isinstance(model, str) or isinstance(recompute, str):
        return Utilization(model_flops_per_s=rate, reason=model if isinstance(model, str) else str(recompute))
    mfu, hfu = model / seconds, (model + recompute) / seconds
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


def _seconds_at_peak(kinds: Mapping[Kind, int], peak: Peak, flags: Tf32Flags) -> float | str:
    seconds = 0.0
    for kind, flops in kinds.items():
        chosen = arithmetic(kind, flags, peak)
        if chosen is None:
            return f"no peak of the device is known for {kind.dtype}"
        seconds += flops / (peak.tflops[chosen] * 1e12)
    return seconds
