"""The rule on activation checkpointing: what it costs, what it saves, and whether the free memory would do without."""

from __future__ import annotations

from .._units import format_bytes, format_ms
from ..frame import Phase
from ..summary import Finding, Row
from .evidence import Evidence
from .thresholding import Weighed, abstain, most, place, spent, weigh_rows
from .thresholds import RECOMPUTE_SHARE


def recompute(seen: Evidence) -> Finding | None:
    """Activation checkpointing: forwards that run a second time in backward, to save memory."""
    rows = seen.rows.get(Phase.RECOMPUTE)
    if rows is None:
        if Phase.FORWARD in seen.rows:
            return None
        return abstain("recompute", "forward spans", "name the model's modules as targets, with the phase recompute")
    weighed = weigh_rows("recompute", seen, rows, RECOMPUTE_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    saved, free = saved_bytes(seen), free_bytes(seen)
    enough = None if saved is None or free is None else saved < free
    facts = {"saved_bytes": saved, "free_bytes": free, "enough": enough}
    return weighed.finding(
        f"checkpointing computes {spent(weighed)} a second time{most(seen, rows)}; {_memory(seen, saved, free)}",
        _next(seen, free, enough),
        name=place(rows),
        evidence={key: value for key, value in facts.items() if value is not None},
    )


def _outermost(seen: Evidence) -> list[Row]:
    """Return the recomputed modules that lie in no other one; each keeps what is in it."""
    rows = seen.rows.get(Phase.RECOMPUTE, [])
    names = {row.name for row in rows}
    return [row for row in rows if row.parent not in names or row.parent == row.name]


def saved_bytes(seen: Evidence) -> int | None:
    """Return what the outermost recomputed modules keep while their backward runs; a device's allocator knows it.

    It is the most that doing without would take: the largest of them is there at the peak as it is.
    """
    outer = _outermost(seen)
    if "peak_bytes" not in seen.summary.memory or not outer:
        return None
    known = [row.memory_growth_bytes for row in outer if row.memory_growth_bytes is not None]
    return sum(max(growth, 0) for growth in known) if len(known) == len(outer) else None


def free_bytes(seen: Evidence) -> int | None:
    """Return what the run left free of its device's memory at its peak."""
    peak, capacity = seen.summary.memory.get("peak_bytes"), seen.facts.memory_capacity_bytes
    return None if peak is None or capacity is None else max(capacity - peak, 0)


def _memory(seen: Evidence, saved: int | None, free: int | None) -> str:
    if saved is None:
        lacks = "a device's allocator tells it, the CPU has none"
        if "peak_bytes" in seen.summary.memory:
            lacks = "memory: true on a target"
        room = "" if free is None else f"; {format_bytes(free)} were free at the peak"
        return f"what it saves was not measured ({lacks}){room}"
    if free is None:
        return f"it saves at most {format_bytes(saved)}"
    word = "enough to do without it" if saved < free else "too little to do without all of it"
    return f"it saves at most {format_bytes(saved)} and {format_bytes(free)} were free at the peak: {word}"


def _next(seen: Evidence, free: int | None, enough: bool | None) -> str:
    if enough:
        return "switch checkpointing off: what is free holds all that it saves"
    fitting = [] if free is None or enough is None else _fitting(seen, free)
    if fitting:
        won = sum(row.total_ns for row in fitting) / seen.summary.steps
        kept = sum(max(row.memory_growth_bytes or 0, 0) for row in fitting)
        names = ", ".join(row.name for row in fitting[:3]) + (
            f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
        )
        return (
            f"switch it off for {names}: {format_ms(won)} a step for {format_bytes(kept)}, which fits; "
            "keep it where a millisecond takes more"
        )
    return (
        "switch checkpointing off where memory allows, first on the module that recomputes longest; or checkpoint only "
        "what is cheap to compute and large to keep"
    )


def _fitting(seen: Evidence, free: int) -> list[Row]:
    """Choose modules to keep in memory, those with most time for a byte first, as long as they fit."""
    chosen = []
    rows = [row for row in _outermost(seen) if row.memory_growth_bytes is not None]
    for row in sorted(rows, key=lambda row: (-row.total_ns / max(row.memory_growth_bytes or 0, 1), row.name)):
        takes = max(row.memory_growth_bytes or 0, 0)
        if takes < free:
            chosen.append(row)
            free -= takes
    return chosen
