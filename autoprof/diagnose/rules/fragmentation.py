"""Rule ``fragmentation``: the allocator holds memory that was never in use at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..._core.units import format_bytes
from ...summary import Finding
from .. import Evidence, Experiment, Rule, abstain
from .._thresholding import is_above

MIN_SHARE: Final = 0.25
"""Reserved memory that was never in use at the same time, over all reserved memory."""
MIN_BYTES: Final = 512 * 2**20
"""Less than this is the allocator's normal rounding."""
MIN_RETRIES: Final = 3
"""Times that the allocator released its cache and tried again, each time waiting for the device. The first steps, which
try kernels, may cause one or two."""


def judge(run: Evidence) -> Finding | None:
    """Judge the reserved memory above the peak."""
    memory = run.summary.memory
    reserved, peak = memory.get("reserved_bytes"), memory.get("peak_bytes")
    if reserved is None or peak is None:
        remedy = "nothing to do when the model trains on the CPU"
        return abstain("fragmentation", "a caching allocator's counters", remedy)
    unused = max(reserved - peak, 0)
    share = unused / max(reserved, 1)
    if unused < MIN_BYTES or not is_above(share, MIN_SHARE):
        return None
    retries = memory.get("alloc_retries", 0)
    failed = f"; {times(retries)} no piece was large enough and the allocator released its cache" if retries else ""
    return Finding(
        "fragmentation",
        "critical" if retries >= MIN_RETRIES else "warning",
        f"of {format_bytes(reserved)} reserved memory, {format_bytes(unused)} were never in use at the same time since "
        f"the peak was last reset{failed}",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; use fewer different input shapes",
        evidence={
            "reserved_bytes": reserved,
            "peak_bytes": peak,
            "alloc_retries": retries,
            "share": round(share, 4),
            "bound": MIN_SHARE,
        },
    )


def is_fragmented(memory: Mapping[str, int]) -> bool:
    """Return whether the reserved memory would suffice in one piece: then fragmentation causes the retries."""
    unused = memory.get("reserved_bytes", 0) - memory.get("peak_bytes", 0)
    return unused >= MIN_BYTES and unused >= MIN_SHARE * memory["reserved_bytes"]


def times(count: int) -> str:
    """Return a number of events as text."""
    return "once" if count == 1 else f"{count} times"


RULE = Rule(
    "fragmentation",
    judge,
    order=170,
    needs_device=True,
    experiment=Experiment("allocator.expandable_segments", value=True, quantity="peak_bytes"),
)
