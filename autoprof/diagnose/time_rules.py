"""Rules on where the step's time goes: loader, copies, recompute, optimizer, communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..span import Phase
from ..summary import Finding, Row
from ..units import format_bytes, format_ms, format_percent
from .evidence import Evidence, OptimizerFact
from .thresholds import (
    COMM_SHARE,
    DATA_SHARE,
    H2D_SHARE,
    OPTIMIZER_SHARE,
    RECOMPUTE_SHARE,
)
from .weigh import Weighed, abstain, weigh_rows

NEARLY_ALL: Final = 0.8
"""From this part on a time is said to be in one place."""


def data_wait(seen: Evidence) -> Finding | None:
    """Waiting for the loader: the exposed wait only, for what workers prepared ahead is not in the span."""
    rows = seen.rows.get(Phase.DATA)
    if rows is None:
        return abstain("data-wait", "data spans", "wrap the loader: for batch in session.loader(loader)")
    weighed = weigh_rows("data-wait", seen, rows, DATA_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    return weighed.finding(
        f"each step waits {_spent(weighed)} for its batch{_most(seen, rows)}",
        "let the loader work ahead: more num_workers, persistent_workers, a larger prefetch_factor; or make what it "
        "does for a sample cheaper (decode and crop once, keep the result)",
        name=_place(rows),
    )


def h2d_copy(seen: Evidence) -> Finding | None:
    """Copies of the batch to the device that the step waits for."""
    rows = seen.rows.get(Phase.H2D)
    if rows is None:
        return abstain("h2d-copy", "h2d spans", "nothing to do where the model trains on the CPU")
    weighed = weigh_rows("h2d-copy", seen, rows, H2D_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    return weighed.finding(
        f"copies to the device take {_spent(weighed)}{_most(seen, rows)}",
        "pin_memory=True in the loader and .to(device, non_blocking=True), and copy the next batch while this one "
        "trains; send fewer bytes (uint8 images, normalised on the device)",
        name=_place(rows),
    )


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
    saved = saved_bytes(seen)
    memory = "; what it saves was not measured (memory: true on a target)"
    if saved is not None:
        memory = f"; it saves about {format_bytes(saved)}" + _free(seen, saved)
    return weighed.finding(
        f"checkpointing computes {_spent(weighed)} a second time{_most(seen, rows)}{memory}",
        "switch checkpointing off where memory allows, first on the module that recomputes longest; or checkpoint only "
        "what is cheap to compute and large to keep",
        name=_place(rows),
        evidence={} if saved is None else {"saved_bytes": saved},
    )


def saved_bytes(seen: Evidence) -> int | None:
    """Return what the outermost recomputed modules keep while their backward runs; a device's allocator knows it."""
    rows = seen.rows.get(Phase.RECOMPUTE, [])
    names = {row.name for row in rows}
    outer = [row for row in rows if row.parent not in names or row.parent == row.name]
    if seen.summary.clock != "device" or not outer:
        return None
    grown = [row.memory_growth_bytes for row in outer]
    known = [growth for growth in grown if growth is not None and growth > 0]
    return sum(known) if len(known) == len(grown) else None


def free_bytes(seen: Evidence) -> int | None:
    """Return what the run left free of its device's memory at its peak."""
    peak, capacity = seen.summary.memory.get("peak_bytes"), seen.facts.memory_capacity_bytes
    return None if peak is None or capacity is None else max(capacity - peak, 0)


def _free(seen: Evidence, saved: int) -> str:
    free = free_bytes(seen)
    if free is None:
        return ""
    word = "enough to do without it" if free > saved else "too little to do without all of it"
    return f" and {format_bytes(free)} were free at the peak: {word}"


def optimizer(seen: Evidence) -> Finding | None:
    """An optimizer that takes more of the step than reading and writing the parameters once explains."""
    rows = seen.rows.get(Phase.OPTIMIZER)
    if rows is None:
        return abstain(
            "optimizer", "optimizer spans", "pass optimizer= to autoprof.instrument, or use a torch optimizer"
        )
    weighed = weigh_rows("optimizer", seen, rows, OPTIMIZER_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    facts = seen.facts.optimizers or ()
    state = sum(fact.state_bytes for fact in facts)
    held = f"; its state holds {format_bytes(state)}" if state else ""
    return weighed.finding(
        f"the optimizer takes {_spent(weighed)}{held}",
        _faster(facts),
        name=_place(rows),
        # Not all of it can be won, and nobody measured how much: what is above the bound is.
        gain_ns=weighed.mean_ns - OPTIMIZER_SHARE * seen.summary.step_mean_ns,
        evidence={"state_bytes": state, "kinds": [fact.kind for fact in facts]} if facts else {},
    )


def _faster(facts: Sequence[OptimizerFact]) -> str:
    more = "a larger batch or accumulated gradients mean fewer optimizer steps a sample"
    if facts and all(fact.fused for fact in facts):
        return f"it is fused already; {more}"
    if facts and any(fact.foreach is False for fact in facts):
        return f"foreach=False updates parameter by parameter: take fused=True, or drop foreach=False; {more}"
    return f"fused=True (AdamW, Adam, SGD) updates all parameters in one go; {more}"


def comm_exposed(seen: Evidence) -> Finding | None:
    """Communication that the step waits for."""
    rows = seen.rows.get(Phase.COMM)
    if rows is None:
        return abstain("comm-exposed", "comm spans", "nothing to do where one process trains alone")
    weighed = weigh_rows("comm-exposed", seen, rows, COMM_SHARE)
    if not isinstance(weighed, Weighed):
        return weighed
    return weighed.finding(
        f"communication takes {_spent(weighed)} that no computation hides",
        "let it overlap with backward (DDP buckets, FSDP prefetch), accumulate gradients under no_sync(), or send "
        "less (bfloat16 gradients)",
        name=_place(rows),
    )


def _spent(weighed: Weighed) -> str:
    return f"{format_ms(weighed.mean_ns)} ({format_percent(weighed.mean_share)} of the step)"


def _place(rows: Sequence[Row]) -> str | None:
    """Name the row that has nearly all of the time; None where it is spread over several."""
    longest = _longest(rows)
    return longest.name if longest.self_ns >= NEARLY_ALL * sum(row.self_ns for row in rows) else None


def _most(seen: Evidence, rows: Sequence[Row]) -> str:
    """Say which row has the most of a time that is spread over several."""
    longest = _longest(rows)
    return "" if _place(rows) else f", {format_ms(longest.self_ns / seen.summary.steps)} of it in {longest.name}"


def _longest(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: (row.self_ns, row.name))
