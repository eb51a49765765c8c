"""Rule ``recompute``: activation checkpointing runs forwards a second time in backward, to save memory."""

from __future__ import annotations

from typing import Final

from ..._core.units import format_bytes, format_flops, format_ms
from ...frame import Phase
from ...summary import Finding, Row
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, describe_longest, dominant_name, threshold_rows
from .._checkpointing import outermost_recomputed, saved_bytes

MAX_SHARE: Final = 0.05
"""Checkpointing a whole model costs about one more forward, a quarter to a third of the step (Chen et al. 2016,
arXiv:1604.06174, report 30 %); below a twentieth only small parts are checkpointed."""


def judge(run: Evidence) -> Finding | None:
    """Judge the recompute time, and compare the memory that it saves with the memory that was free."""
    rows = run.rows.get(Phase.RECOMPUTE)
    if rows is None:
        counted = _counted_flops(run)
        if counted:
            return _contradiction(counted)
        if Phase.FORWARD in run.rows:
            return None
        return abstain("recompute", "forward spans", "name the model's modules as targets, with the phase recompute")
    found = threshold_rows("recompute", run, rows, MAX_SHARE)
    if not isinstance(found, ExceededBound):
        return found
    saved, free = saved_bytes(run), _free_bytes(run)
    enough = None if saved is None or free is None else saved < free
    memory = {"saved_bytes": saved, "free_bytes": free, "enough": enough}
    return found.finding(
        f"recomputing checkpointed forwards takes {found}{describe_longest(run, rows)}; "
        f"{_describe_memory(run, saved, free)}",
        _advise(run, free, enough),
        name=dominant_name(rows),
        evidence={key: value for key, value in memory.items() if value is not None},
    )


def _counted_flops(run: Evidence) -> int:
    """Return the FLOPs of recompute that were counted in a mean step."""
    work = run.summary.work
    return 0 if work is None else work.flops.get(Phase.RECOMPUTE.value, 0)


def _contradiction(flops: int) -> Finding:
    """Return the abstention where recompute was counted, but not timed."""
    return abstain(
        "recompute",
        f"recompute spans: the counted FLOPs have {format_flops(flops)} of recompute a step, but none was timed, so "
        "its time is part of backward",
        "see the notes: it runs inside a compiled graph or by another package's checkpointing; or add recompute to the "
        "phases of the targets",
        {"counted_flops": flops},
    )


def _free_bytes(run: Evidence) -> int | None:
    """Return the device memory that was free at the peak."""
    peak, capacity = run.summary.memory.get("peak_bytes"), run.facts.memory_capacity_bytes
    return None if peak is None or capacity is None else max(capacity - peak, 0)


def _describe_memory(run: Evidence, saved: int | None, free: int | None) -> str:
    if saved is None and "peak_bytes" not in run.summary.memory:
        return "the memory that it saves is measurable only on a GPU"
    if saved is None:
        room = "" if free is None else f"; {format_bytes(free)} were free at the peak"
        return f"the memory that it saves was not measured (set memory: true on a target){room}"
    if free is None:
        return f"it saves at most {format_bytes(saved)}"
    verdict = "enough to do without it" if saved < free else "too little to do without all of it"
    return f"it saves at most {format_bytes(saved)} and {format_bytes(free)} were free at the peak: {verdict}"


def _advise(run: Evidence, free: int | None, enough: bool | None) -> str:
    if enough:
        return "switch checkpointing off: the free memory holds everything that it saves"
    fitting = [] if free is None or enough is None else _fitting_modules(run, free)
    if fitting:
        gain_ns = sum(row.total_ns for row in fitting) / run.summary.steps
        needed = sum(max(row.memory_growth_bytes or 0, 0) for row in fitting)
        more = f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
        return (
            f"switch it off for {', '.join(row.name for row in fitting[:3])}{more}: this saves {format_ms(gain_ns)} a "
            f"step and needs {format_bytes(needed)}, which fits; keep it for the other modules"
        )
    return (
        "switch checkpointing off where memory allows, first for the module that recomputes longest; or checkpoint "
        "only modules that are cheap to compute and large to keep"
    )


def _fitting_modules(run: Evidence, free: int) -> list[Row]:
    """Choose modules to keep in memory as long as they fit, first those with the most time per byte."""
    chosen = []
    rows = [row for row in outermost_recomputed(run) if row.memory_growth_bytes is not None]
    for row in sorted(rows, key=lambda row: (-row.total_ns / max(row.memory_growth_bytes or 0, 1), row.name)):
        needed = max(row.memory_growth_bytes or 0, 0)
        if needed < free:
            chosen.append(row)
            free -= needed
    return chosen


def _experiment(finding: Finding) -> Experiment:
    return Experiment("checkpointing", value=False, target=finding.name)


RULE = Rule(
    "recompute",
    judge,
    order=30,
    host_times=False,  # forwards run a second time on any machine
    experiment=_experiment,
)
