"""Rule ``memory-pressure``: the peak nearly fills the memory, or the allocator ran out of it.

Finds, above a bound:

- the peak over the memory (a container's limit counts); or the allocator's retries and failures, unless fragmentation
  explains them: 90 %; 3 retries, 1 failure.
"""

from __future__ import annotations

from typing import Final

from ...base.summary import Finding, Severity
from ...base.units import format_bytes, format_percent
from .. import Evidence, Experiment, Rule, abstain
from .._allocator import is_fragmented, times
from .._bounds import PATTERN
from .._optimizers import advise_smaller

MAX_SHARE: Final = 0.9
"""Peak over capacity: above this one longer sample may end the run."""


def judge(run: Evidence) -> Finding | None:
    """Judge the peak, and the allocator's retries unless fragmentation explains them."""
    memory, capacity = run.summary.memory, run.facts.memory_capacity_bytes
    peak = memory.get("peak_bytes", memory.get("rss_peak_bytes"))
    retries, ooms = memory.get("alloc_retries", 0), memory.get("ooms", 0)
    failed = ooms > 0 or (retries >= PATTERN and not is_fragmented(memory))
    if peak is None or (capacity is None and not failed):
        missing = "memory readings" if peak is None else "the memory's capacity"
        return abstain("memory-pressure", missing, "a device or a system that reports its memory")
    share = None if capacity is None else peak / capacity
    evidence = {"peak_bytes": peak, "capacity_bytes": capacity, "bound": MAX_SHARE}
    evidence |= {} if share is None else {"share": round(share, 4)}
    evidence |= {"alloc_retries": retries, "ooms": ooms} if failed else {}
    full = share is not None and share > MAX_SHARE
    if not full and not failed:
        return None
    severity: Severity = "critical" if ooms or (share or 0.0) > (1 + MAX_SHARE) / 2 else "warning"
    why = f"the peak was {format_bytes(peak)}"
    why += "" if capacity is None else f" of {format_bytes(capacity)} ({format_percent(peak / capacity)})"
    if full:
        why += ", so a longer sample may run out of memory"
    if retries:
        why += f"; the allocator released its cache and tried again {times(retries)}, waiting for the device each time"
    if ooms:
        why += f"; memory ran out {times(ooms)}"
    smaller = advise_smaller(run.facts.optimizers or ())
    return Finding(
        "memory-pressure",
        severity,
        why,
        "use a smaller batch with gradient accumulation, checkpoint the largest activations"
        + (f"; {smaller}" if smaller else ", or use an 8-bit optimizer"),
        evidence=evidence,
    )


RULE = Rule("memory-pressure", judge, order=160, experiment=Experiment("batch_size", "decrease", quantity="peak_bytes"))
