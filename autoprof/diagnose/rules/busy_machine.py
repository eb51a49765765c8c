"""Rule ``busy-machine``: other processes hold the processors, so times of this run are no property of the program."""

from __future__ import annotations

from ..._core.units import format_percent
from ...summary import Finding
from .. import Evidence, Experiment, Rule, abstain
from .._contention import contention


def judge(run: Evidence) -> Finding | None:
    """Judge the wait of the training thread for a processor while other processes use them."""
    found = contention(run)
    if found is None:
        return abstain("busy-machine", "the machine's processor use", "set monitor: auto, on Linux")
    if not found.by_others:
        return None
    waited = (
        "" if found.waiting is None else f"; the training thread waited {format_percent(found.waiting)} of the time"
    )
    return Finding(
        "busy-machine",
        "warning",
        f"other processes kept {found.others:.1f} of {found.machine_cores} processors busy, this one "
        f"{found.own + found.children:.1f}{waited}. Steps are longer for this reason, and may vary more than the "
        "program makes them",
        "see what else runs (top), stop it or train on processors of your own (taskset, a job's CPU request), and "
        "measure again",
        gain_ns=None if found.waiting is None else round(found.waiting * run.summary.step_mean_ns),
        evidence={
            "others_cores": round(found.others, 2),
            "own_cores": round(found.own + found.children, 2),
            "machine_cores": found.machine_cores,
            "waiting": found.waiting,
        },
    )


RULE = Rule("busy-machine", judge, order=136, experiment=Experiment("machine", "edit"))
