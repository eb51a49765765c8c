"""The what-if table: estimates of a run with one thing changed, from this run's own figures."""

from __future__ import annotations

from ..base.frame import Phase
from ..base.summary import WhatIf
from ._bounds import MIN_SHARE
from ._evidence import Evidence
from ._rule import MIN_STEPS


def what_if(run: Evidence) -> tuple[WhatIf, ...]:
    """Return the changes for which this run has the inputs, each with its assumptions.

    The time of the phases that depend on the batch is multiplied, the others stay. A larger batch is an extrapolation.
    """
    summary = run.summary
    if summary.steps < MIN_STEPS:
        return ()
    total_ns, table = summary.total_step_ns, []
    if freed := _freed_bytes(run):
        assumed = "a quarter of its state is left; the step time stays (its change was not measured)"
        table.append(_change(run, "8-bit optimizer", assumed, total_ns, -freed))
    if summary.throughput is not None:
        growing_ns = sum(ns for phase, ns in summary.phases.items() if phase.traits.scales_with_batch)
        assumed = (
            "extrapolated: all but optimizer and communication grows with the batch; a device that is not fully used "
            "gains more"
        )
        table.append(_change(run, "batch x 2", assumed, total_ns + growing_ns, _growing_bytes(run), times=2))
    if recompute_ns := summary.phases.get(Phase.RECOMPUTE, 0):
        saved = saved_bytes(run)
        kept = "the memory for it was not measured (set memory: true on a target)"
        if saved is not None:
            kept = "it needs at most the memory of everything that was measured to be recomputed"
        assumed = f"the measured recompute is gone, the rest of the step stays; {kept}"
        table.append(_change(run, "no checkpointing", assumed, total_ns - recompute_ns, saved))
    return tuple(table)


def saved_bytes(run: Evidence) -> int | None:
    """Return the most memory that checkpointing saves; None where it was not measured.

    It is the memory that the outermost recomputed modules keep while their backward runs. Without checkpointing the
    run needs at most this much more, because the largest of them is part of the peak already. A module that only
    checkpoints its children, whose own memory was not measured, is left out.
    """
    recomputed = run.rows.get(Phase.RECOMPUTE, [])
    rows = [row for row in recomputed if row.memory_growth_bytes is not None or row.self_ns > MIN_SHARE * row.total_ns]
    names = {row.name for row in rows}
    growths = [row.memory_growth_bytes for row in rows if row.parent not in names or row.parent == row.name]
    known = [max(growth, 0) for growth in growths if growth is not None]
    return sum(known) if known and len(known) == len(growths) and "peak_bytes" in run.summary.memory else None


def _change(
    run: Evidence, change: str, assumed: str, total_ns: int, memory_change: int | None, *, times: int = 1
) -> WhatIf:
    """Compute a line of as many steps in ``total_ns``, of ``times`` as many samples each.

    ``memory_change`` is in bytes, None where it is not known.
    """
    summary = run.summary
    step_ns = round(total_ns / summary.steps)
    ratio = step_ns / times / max(summary.step_mean_ns, 1)
    peak, capacity = _peak_bytes(run), run.facts.memory_capacity_bytes
    memory = None if peak is None or memory_change is None else max(peak + memory_change, 0)
    if memory is not None and capacity is not None and memory > capacity:
        assumed += "; it does not fit into the memory"
    remaining_ns = None if summary.progress is None else summary.progress.remaining_ns
    return WhatIf(
        change,
        step_ns=step_ns,
        throughput=None if summary.throughput is None else summary.throughput / max(ratio, 1e-12),
        memory_bytes=memory,
        memory_change_bytes=memory_change,
        assumed=assumed,
        time_ratio=ratio,
        memory_share=None if memory is None or not capacity else memory / capacity,
        remaining_ns=None if remaining_ns is None else round(remaining_ns * ratio),
    )


def _freed_bytes(run: Evidence) -> int:
    """Return the bytes that 8-bit versions of these optimizers would free; they run on a GPU only."""
    if run.facts.environment.device == "cpu":
        return 0
    return sum(one.freed_bytes for one in run.facts.optimizers or ())


def _growing_bytes(run: Evidence) -> int | None:
    """Return the part of the peak above the memory of the model, as counted, else above that at the end of a step."""
    peak, fixed = _peak_bytes(run), run.summary.memory.get("allocated_bytes")
    if peak is None or fixed is None:
        return None
    whole = run.summary.memory_table[0] if run.summary.memory_table else None
    if whole is not None and None not in (whole.parameter_bytes, whole.gradient_bytes, whole.state_bytes):
        fixed = whole.held_bytes or 0
    return max(peak - fixed, 0)


def _peak_bytes(run: Evidence) -> int | None:
    memory = run.summary.memory
    return memory.get("peak_bytes", memory.get("rss_peak_bytes"))
