"""The what-if table: estimates of a run with one thing changed, from this run's own figures."""

from __future__ import annotations

from .._core.units import format_ms
from ..frame import TRAINING_LANE, Phase
from ..summary import WhatIf
from ._checkpointing import saved_bytes
from ._evidence import Evidence
from ._rule import MIN_STEPS


def what_if(run: Evidence) -> tuple[WhatIf, ...]:
    """Return the changes for which this run has the inputs, each with its assumptions.

    The time of the phases that depend on the batch is multiplied, the others stay. A larger batch is an extrapolation.
    """
    if run.summary.steps < MIN_STEPS:
        return ()
    table = []
    if freed := _freed_bytes(run):
        assumed = "a quarter of its state is left; the step time stays (its change was not measured)"
        if "peak_bytes" not in run.summary.memory:
            assumed += "; such optimizers run on a GPU"
        table.append(_change(run, "8-bit optimizer", assumed, freed=freed))
    if run.summary.throughput is not None:
        table.append(_change(run, "batch x 2", _assume_batch(run), times=2))
    if recompute_ns := run.summary.phases.get(Phase.RECOMPUTE, 0):
        saved = saved_bytes(run)
        kept = "the memory for it was not measured (set memory: true on a target)"
        if saved is not None:
            kept = "it needs at most the memory of everything that was measured to be recomputed"
        assumed = f"the measured recompute is gone, the rest of the step stays; {kept}"
        table.append(_change(run, "no checkpointing", assumed, recompute_ns=recompute_ns, saved=saved))
    return tuple(table)


def _change(
    run: Evidence,
    change: str,
    assumed: str,
    *,
    times: int = 1,
    freed: int = 0,
    recompute_ns: int = 0,
    saved: int | None = 0,
) -> WhatIf:
    """Compute a line: a batch ``times`` as large, ``freed`` bytes less state, no recompute for ``saved`` bytes more.

    ``saved`` None is not known.
    """
    summary = run.summary
    fixed = _fixed_ns(run)
    step_ns = round((fixed + times * (summary.total_step_ns - recompute_ns - fixed)) / summary.steps)
    ratio = step_ns / times / max(summary.step_mean_ns, 1)
    before, memory = _peak_bytes(run), _memory_bytes(run, times, saved, freed)
    capacity = run.facts.memory_capacity_bytes
    if memory is not None and capacity is not None and memory > capacity:
        assumed += "; it does not fit into the memory"
    memory_change = None if memory is None or before is None else memory - before
    if memory_change is None and times == 1 and saved is not None:
        memory_change = saved - freed
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


def _fixed_ns(run: Evidence) -> int:
    """Return the time of all steps that does not grow with the batch: work on parameters, and the host's launches."""
    summary = run.summary
    parameters_ns = sum(ns for phase, ns in summary.phases.items() if not phase.traits.scales_with_batch)
    return min(parameters_ns + _launch_ns(run), summary.total_step_ns)


def _launch_ns(run: Evidence) -> int:
    """Return the device time that was limited by the host's launches; one launch serves any batch."""
    phases = (Phase.FORWARD, Phase.BACKWARD)
    rows = [row for row in run.summary.rows if row.lane == TRAINING_LANE and row.phase in phases]
    return round(sum(row.self_ns * (row.host_bound or 0.0) for row in rows))


def _assume_batch(run: Evidence) -> str:
    if run.summary.clock == "host":
        growth = "all but optimizer and communication grows with the batch; a device that is not fully used gains more"
    else:
        launches = format_ms(_launch_ns(run) / run.summary.steps)
        growth = f"all but optimizer, communication and {launches} of the host's launches grows with the batch"
    return f"extrapolated: {growth}"


def _memory_bytes(run: Evidence, times: int, saved: int | None, freed: int) -> int | None:
    peak = _peak_bytes(run)
    if peak is None or saved is None:
        return None
    if times == 1:
        return max(peak - freed, 0) + saved
    # The memory that does not grow with the batch: as counted, else the memory at the end of a step.
    fixed = run.summary.memory.get("allocated_bytes")
    if fixed is None:
        return None
    whole = run.summary.memory_table[0] if run.summary.memory_table else None
    if whole is not None and None not in (whole.parameter_bytes, whole.gradient_bytes, whole.state_bytes):
        fixed = whole.held_bytes or 0
    return fixed + times * max(peak - fixed, 0)


def _peak_bytes(run: Evidence) -> int | None:
    memory = run.summary.memory
    return memory.get("peak_bytes", memory.get("rss_peak_bytes"))
