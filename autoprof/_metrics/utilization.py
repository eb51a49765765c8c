"""How much of a device's peak arithmetic a model uses: MFU and HFU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .._units import NS_PER_S
from ..devices import Arithmetic, Peak, Tf32Flags
from ..frame import Phase
from .flops.work import MODEL_PHASES, Kind, WorkCount

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
    """Fractions of the peak; None, with the reason, where there is no honest figure."""

    mfu: float | None = None
    """Of the model's work, forward and backward: what is recomputed earns nothing (Chowdhery et al. 2022)."""
    hfu: float | None = None
    """Of all work that the device did, recompute included."""
    model_flops_per_s: float | None = None
    """Forward and backward; needs no peak."""
    reason: str | None = None


def arithmetic(kind: Kind, flags: Tf32Flags, peak: Peak) -> Arithmetic | None:
    """Return the arithmetic in which a device does work of this kind, or None where it has no peak."""
    chosen = _BY_DTYPE.get(kind.dtype)
    if chosen == "fp32" and "tf32" in peak.tflops and (flags.conv if kind.family == "conv" else flags.matmul):
        return "tf32"
    return chosen if chosen in peak.tflops else None


def utilization(
    work: WorkCount,
    duration_ns: float,
    peak: Peak | None,
    flags: Tf32Flags,
    fqn: str = "",
    why_no_peak: str | None = None,
) -> Utilization:
    """Return MFU and HFU of the work of one device in this time: the whole model's, or that of a module and all inside.

    Each kind of arithmetic is held against its own peak: the figure is the time that the device would need at its peak,
    over the time taken. Above one it is refused.
    """
    if work.reason is not None:
        return Utilization(reason=work.reason)
    if not duration_ns > 0:
        return Utilization(reason=f"no time to divide by: {duration_ns:g} ns")
    seconds = duration_ns / NS_PER_S
    rate = (work.flops(fqn, MODEL_PHASES) or 0) / seconds
    if peak is None:
        return Utilization(model_flops_per_s=rate, reason=why_no_peak or "no peak is known for this device")
    model = _seconds_at_peak(work.kinds(fqn, MODEL_PHASES), peak, flags)
    again = _seconds_at_peak(work.kinds(fqn, Phase.RECOMPUTE), peak, flags)
    if isinstance(model, str) or isinstance(again, str):
        return Utilization(model_flops_per_s=rate, reason=model if isinstance(model, str) else str(again))
    mfu, hfu = model / seconds, (model + again) / seconds
    if hfu > 1:
        what = f"{hfu:.2f} of the peak cannot be: a type, a count or a time is wrong"
        return Utilization(model_flops_per_s=rate, reason=what)
    return Utilization(mfu, hfu, rate)


def peak_seconds(kind: Kind, flops: int, peak: Peak | None, flags: Tf32Flags) -> tuple[float | None, float | None]:
    """Return how long such work takes at the device's peak, as it is done and in 16 bits; None without a peak."""
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
