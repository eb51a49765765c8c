"""Rule ``recompute``: activation checkpointing runs forwards a second time in backward, to save memory.

Finds, above a bound:

- checkpointing: forwards that run a second time, and the memory that this saves at most. It says whether the free
  memory would do without it, and otherwise which modules fit: 10 %.
"""

from __future__ import annotations

from ...base.frame import Phase
from ...base.summary import Finding
from ...base.units import format_bytes, format_flops
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, describe_longest, dominant_name, threshold_rows
from .._what_if import saved_bytes


def judge(run: Evidence) -> Finding | None:
    """Judge the recompute time, and compare the memory that it saves with the memory that was free."""
    rows = run.rows.get(Phase.RECOMPUTE)
    if rows is None:
        return _without_rows(run)
    found = threshold_rows("recompute", run, rows)
    if not isinstance(found, ExceededBound):
        return found
    saved, peak, capacity = saved_bytes(run), run.summary.memory.get("peak_bytes"), run.facts.memory_capacity_bytes
    free = None if peak is None or capacity is None else max(capacity - peak, 0)
    enough = None if saved is None or free is None else saved < free
    memory = {"saved_bytes": saved, "free_bytes": free, "enough": enough}
    return found.finding(
        f"recomputing checkpointed forwards takes {found}{describe_longest(run, rows)}; "
        f"{_describe_memory(peak, saved, free)}",
        "switch checkpointing off: the free memory holds everything that it saves"
        if enough
        else "switch checkpointing off where memory allows, first for the module that recomputes longest; or "
        "checkpoint only modules that are cheap to compute and large to keep",
        name=dominant_name(rows),
        evidence={key: value for key, value in memory.items() if value is not None},
    )


def _without_rows(run: Evidence) -> Finding | None:
    """Return an abstention where recompute was counted, but not timed, or where no forward was timed."""
    flops = 0 if run.summary.work is None else run.summary.work.flops.get(Phase.RECOMPUTE.value, 0)
    if flops:
        return abstain(
            "recompute",
            f"recompute spans: the counted FLOPs have {format_flops(flops)} of recompute a step, but none was timed, "
            "so its time is part of backward",
            "see the notes: it runs in a compiled graph without names or by another package's checkpointing; or add "
            "recompute to the phases of the targets",
            {"counted_flops": flops},
        )
    if Phase.FORWARD in run.rows:
        return None
    return abstain("recompute", "forward spans", "name the model's modules as targets, with the phase recompute")


def _describe_memory(peak: int | None, saved: int | None, free: int | None) -> str:
    if saved is None and peak is None:
        return "the memory that it saves is measurable only on a GPU"
    if saved is None:
        room = "" if free is None else f"; {format_bytes(free)} were free at the peak"
        return f"the memory that it saves was not measured (set memory: true on a target){room}"
    if free is None:
        return f"it saves at most {format_bytes(saved)}"
    verdict = "enough to do without it" if saved < free else "too little to do without all of it"
    return f"it saves at most {format_bytes(saved)} and {format_bytes(free)} were free at the peak: {verdict}"


RULE = Rule(
    "recompute",
    judge,
    order=30,
    host_times=False,  # forwards run a second time on any machine
    experiment=lambda finding: Experiment("checkpointing", value=False, target=finding.name),
)
