"""Rule ``optimizer``: the optimizer's step, or the schedule of the learning rate, is long."""

from __future__ import annotations

from typing import Final

from ...frame import Phase
from ...summary import Finding
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, dominant_name, threshold_rows
from .._optimizers import advise_faster

MAX_SHARE: Final = 0.15
"""A step of Adam reads and writes a few tensors of the parameters' size once; forward and backward use each parameter
for every sample. If these do not take far longer, the optimizer is slow or the batch is small."""

_RARELY: Final = (
    "look at the work that the optimizer does only in these steps, such as a preconditioner or a synchronisation: do "
    "it less often, or for fewer parameters"
)


def judge(run: Evidence) -> Finding | None:
    """Judge the time of the schedule, then that of the optimizer's step."""
    rows = run.rows.get(Phase.OPTIMIZER)
    if rows is None:
        remedy = 'use a torch optimizer, or put the update inside autoprof.span("update") to see its time'
        return abstain("optimizer", "optimizer spans", remedy)
    schedule = [row for row in rows if row.name.endswith("/scheduler.step")]
    slow = threshold_rows("optimizer", run, schedule, MAX_SHARE) if schedule else None
    if isinstance(slow, ExceededBound):
        return slow.finding(
            f"the schedule of the learning rate takes {slow}",
            "make its functions cheaper, such as a table computed once; or call scheduler.step() less often",
            name=dominant_name(schedule),
        )
    rows = [row for row in rows if row not in schedule]
    found = threshold_rows("optimizer", run, rows, MAX_SHARE) if rows else None
    if not isinstance(found, ExceededBound):
        return found
    optimizers = run.facts.optimizers or ()
    return found.finding(
        f"the optimizer takes {found}",
        advise_faster(optimizers) if found.rare is None else _RARELY,
        name=dominant_name(rows),
        # Some optimizer time remains in any case, and nothing measures how much: the gain is the part above the bound.
        gain_ns=found.mean_ns - MAX_SHARE * run.summary.step_mean_ns
        if found.rare is None
        else found.rare.share.middle * run.summary.step_mean_ns,
        evidence={"kinds": [one.kind for one in optimizers]} if optimizers else {},
    )


RULE = Rule("optimizer", judge, order=60, experiment=Experiment("optimizer.fused", value=True))
