"""Rule ``fragmentation``: the allocator holds memory that was never in use at the same time.

Finds, above a bound:

- memory reserved but never in use at the same time; critical if the allocator had to release its cache: 25 % and 512
  MiB.
"""

from __future__ import annotations

from ...base.summary import Finding
from ...base.units import format_bytes
from .. import Evidence, Experiment, Rule, abstain
from .._allocator import is_fragmented, times
from .._bounds import GOOD_PART, PATTERN


def judge(run: Evidence) -> Finding | None:
    """Judge the reserved memory above the peak."""
    memory = run.summary.memory
    reserved, peak = memory.get("reserved_bytes"), memory.get("peak_bytes")
    if reserved is None or peak is None:
        remedy = "nothing to do when the model trains on the CPU"
        return abstain("fragmentation", "a caching allocator's counters", remedy)
    if not is_fragmented(memory):
        return None
    unused = reserved - peak
    retries = memory.get("alloc_retries", 0)
    failed = f"; {times(retries)} no piece was large enough and the allocator released its cache" if retries else ""
    return Finding(
        "fragmentation",
        "critical" if retries >= PATTERN else "warning",
        f"of {format_bytes(reserved)} reserved memory, {format_bytes(unused)} were never in use at the same time since "
        f"the peak was last reset{failed}",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; use fewer different input shapes",
        evidence={
            "reserved_bytes": reserved,
            "peak_bytes": peak,
            "alloc_retries": retries,
            "share": round(unused / reserved, 4),
            "bound": GOOD_PART,
        },
    )


RULE = Rule(
    "fragmentation",
    judge,
    order=170,
    experiment=Experiment("allocator.expandable_segments", value=True, quantity="peak_bytes"),
)
