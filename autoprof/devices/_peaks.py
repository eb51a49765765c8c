"""The format of a device's peak FLOP/s. Each device's file has its own table, by exact name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from ..base.names import quoted

Arithmetic = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak arithmetic of one device, as torch counts devices."""

    form_factor: str
    tflops: Mapping[Arithmetic, float]
    """10^12 floating-point operations per second, dense; an arithmetic without hardware units is absent."""


@dataclass(frozen=True, slots=True)
class Tf32Flags:
    """Whether float32 operands may be rounded to TF32, for matrix products and for convolutions."""

    matmul: bool
    conv: bool


def find_peak(name: str, peaks: Mapping[str, Peak]) -> tuple[Peak | None, str | None]:
    """Return the peak of the device of exactly this name, or the reason why none is known."""
    if (peak := peaks.get(name)) is not None:
        return peak, None
    near = get_close_matches(name, peaks, n=1, cutoff=0.6)
    hint = f"; the nearest known is {quoted(near[0])}, which is another device" if near else ""
    return None, f"no peak is known for {quoted(name)}{hint}"
