"""Rule ``fragmentation``: the allocator holds memory that was never in use at the same time.

Finds, above a bound:

- memory reserved but never in use at the same time; critical if the allocator had to release its cache: 25 % and 512
  MiB.
"""

from __future__ import annotations

from ..._core.units import format_bytes
from ...summary import Finding
from .. import Evidence, Experiment, Rule, abstain
from .._allocator import MIN_RETRIES, MIN_UNUSED_BYTES, MIN_UNUSED_SHARE, times
from .._thresholding import is_above


def judge(run: Evidence) -> Finding | None:
    """Judge the reserved memory above the peak."""
    memory = run.summary.memory
    reserved, peak = memory.get("reserved_bytes"), memory.get("peak_bytes")
    if reserved is None or peak is None:
        remedy = "nothing to do when the model trains on the CPU"
        return abstain("fragmentation", "a caching allocator's counters", remedy)
    unused = max(reserved - peak, 0)
    share = unused / max(reserved, 1)
    if unused < MIN_UNUSED_BYTES or not is_above(share, MIN_UNUSED_SHARE):
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
            "bound": MIN_UNUSED_SHARE,
        },
    )


RULE = Rule(
    "fragmentation",
    judge,
    order=170,
    needs_device=True,
    experiment=Experiment("allocator.expandable_segments", value=True, quantity="peak_bytes"),
)
