"""Rules on memory: does it grow, is it nearly full, is it in pieces."""

from __future__ import annotations

from collections.abc import Mapping

from .._units import format_bytes, format_percent
from ..summary import Finding, Severity
from .evidence import Evidence, Interval
from .interval import slope
from .optimizers import smaller
from .thresholding import abstain, stand
from .thresholds import (
    FRAGMENTED_BYTES,
    FRAGMENTED_SHARE,
    GROWTH_BYTES,
    GROWTH_READINGS,
    GROWTH_SHARE,
    GROWTH_STEADY,
    MARGIN,
    PRESSURE_SHARE,
    RETRIES,
)


def memory_growth(seen: Evidence) -> Finding | None:
    """Memory that goes on growing: the least readings of the run's thirds rise, and the rise does not slow down.

    That the readings only scatter must be unlikely, too: the line through all of them rises by as much, for sure.
    """
    kind, readings = seen.memory_kind, seen.memory
    if kind is None:
        return abstain("memory-growth", "memory readings", "a device or a system that tells its memory")
    if len(readings) < GROWTH_READINGS:
        missing = f"memory readings: {GROWTH_READINGS} needed, {len(readings)} so far"
        return abstain("memory-growth", missing, "let the run go on")
    third = len(readings) // 3
    parts = readings[:third], readings[third:-third], readings[-third:]
    first, middle, last = (min(part, key=lambda one: (one[1], one[0])) for part in parts)
    grown = last[1] - first[1]
    per_step = grown / max(last[0] - first[0], 1)
    early, late = (_slope(*pair) for pair in ((first, middle), (middle, last)))
    enough = max(GROWTH_BYTES, GROWTH_SHARE * first[1])
    if grown < enough * (1 - MARGIN) or early <= 0 or late < GROWTH_STEADY * (1 - MARGIN) * early:
        return None
    facts = {"kind": kind, "first_bytes": first[1], "last_bytes": last[1], "bytes_per_step": round(per_step)}
    line = slope(readings)
    facts.update(bytes_per_step_low=round(line.low), bytes_per_step_high=round(line.high))
    surely = line.low * (readings[-1][0] - readings[0][0]) >= enough
    if not surely or grown < enough * (1 + MARGIN) or late < GROWTH_STEADY * (1 + MARGIN) * early:
        why = "near the bound" if surely else "but its readings scatter"
        missing = f"inconclusive: {kind} grew by {format_bytes(grown)}, {why}"
        return abstain("memory-growth", missing, "a longer run tells a leak from caches that fill", facts)
    capacity = seen.facts.memory_capacity_bytes
    left = "" if capacity is None else f"; full after some {max(capacity - last[1], 0) / per_step:,.0f} more steps"
    return Finding(
        "memory-growth",
        "warning",
        f"{kind.removesuffix('_bytes')} memory rose from {format_bytes(first[1])} in step {first[0]} to "
        f"{format_bytes(last[1])} in step {last[0]}, {format_bytes(per_step)} a step, and goes on{left}",
        "look for what keeps tensors alive: a list of losses or outputs without .detach() or .item(), a growing cache",
        evidence=facts,
    )


def _slope(one: tuple[int, int], other: tuple[int, int]) -> float:
    return (other[1] - one[1]) / max(other[0] - one[0], 1)


def memory_pressure(seen: Evidence) -> Finding | None:
    """A peak that nearly fills the memory; or an allocator that had to give its cache back to get any."""
    memory, capacity = seen.summary.memory, seen.facts.memory_capacity_bytes
    peak = memory.get("peak_bytes", memory.get("rss_peak_bytes"))
    retries, ooms = memory.get("alloc_retries", 0), memory.get("ooms", 0)
    pressed = ooms > 0 or (retries >= RETRIES and not _in_pieces(memory))
    if peak is None or (capacity is None and not pressed):
        missing = "memory readings" if peak is None else "the memory's capacity"
        return abstain("memory-pressure", missing, "a device or a system that tells its memory")
    share = None if capacity is None else peak / capacity
    facts = {"peak_bytes": peak, "capacity_bytes": capacity, "bound": PRESSURE_SHARE}
    facts |= {} if share is None else {"share": round(share, 4)}
    facts |= {"alloc_retries": retries, "ooms": ooms} if pressed else {}
    full = share is not None and share > PRESSURE_SHARE
    if not full and not pressed:
        return None
    severity: Severity = "critical" if ooms or (share or 0.0) > (1 + PRESSURE_SHARE) / 2 else "warning"
    why = f"the peak was {format_bytes(peak)}"
    why += "" if capacity is None else f" of {format_bytes(capacity)} ({format_percent(peak / capacity)})"
    if full:
        why += ": a longer sample may end the run"
    if retries:
        why += f"; {retries} times the allocator gave its cache back and tried again, each time waiting for the device"
    if ooms:
        why += f"; {ooms} times memory ran out"
    less = smaller(seen.facts.optimizers or ())
    return Finding(
        "memory-pressure",
        severity,
        why,
        "a smaller batch with accumulated gradients, checkpointing of the largest activations"
        + (f"; {less}" if less else ", an 8-bit optimizer"),
        evidence=facts,
    )


def _in_pieces(memory: Mapping[str, int]) -> bool:
    """Whether what is reserved would do if it were in one piece: then retries are the pieces' doing."""
    idle = memory.get("reserved_bytes", 0) - memory.get("peak_bytes", 0)
    return idle >= FRAGMENTED_BYTES and idle >= FRAGMENTED_SHARE * memory["reserved_bytes"]


def fragmentation(seen: Evidence) -> Finding | None:
    """Memory that the allocator holds but that was never used at once."""
    memory = seen.summary.memory
    reserved, peak = memory.get("reserved_bytes"), memory.get("peak_bytes")
    if reserved is None or peak is None:
        return abstain(
            "fragmentation", "a caching allocator's counters", "nothing to do where the model trains on the CPU"
        )
    idle = max(reserved - peak, 0)
    share = idle / max(reserved, 1)
    facts = {"reserved_bytes": reserved, "peak_bytes": peak, "share": round(share, 4), "bound": FRAGMENTED_SHARE}
    facts |= {key: memory[key] for key in ("inactive_split_bytes", "alloc_retries") if key in memory}
    standing = stand(Interval(share, share, share), FRAGMENTED_SHARE)
    if standing == "below" or idle < FRAGMENTED_BYTES:
        return None
    if standing == "near":
        missing = f"inconclusive: {format_percent(share)} of what is reserved was never used at once, near the bound"
        return abstain("fragmentation", missing, "a longer run", facts)
    pieces = memory.get("inactive_split_bytes")
    lying = "" if pieces is None else f"; {format_bytes(pieces)} lie in pieces between blocks in use at a step's end"
    retries = memory.get("alloc_retries", 0)
    failed = f"; {retries} times no piece was large enough, and the cache was given back" if retries else ""
    return Finding(
        "fragmentation",
        "critical" if retries >= RETRIES else "warning",
        f"of {format_bytes(reserved)} reserved, {format_bytes(idle)} were never used at once since "
        f"the peak was last reset{lying}{failed}",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; fewer different input shapes",
        evidence=facts,
    )
