"""Rule ``optimizer``: the optimizer's step, or the schedule of the learning rate, is long.

Finds, above a bound:

- the optimizer's step, or the schedule of the learning rate; the gain is the part above the bound: 15 %. A note,
  unless a setting slows it, or only some steps are long.
"""

from __future__ import annotations

from typing import Final

from ...base.frame import Phase
from ...base.names import enumerate_names
from ...base.summary import Finding
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, dominant_name, threshold_rows
from .._bounds import MAX_BESIDE, NEARLY_ALL
from .._evidence import SPARSE
from .._optimizers import advise_faster

_SPARSE: Final = (
    "nearly all parameters are rows of {}, of which a step reads few, but the optimizer updates all: " + SPARSE
)
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
    slow = threshold_rows("optimizer", run, schedule, MAX_BESIDE) if schedule else None
    if isinstance(slow, ExceededBound):
        return slow.finding(
            f"the schedule of the learning rate takes {slow}",
            "make its functions cheaper, such as a table computed once; or call scheduler.step() less often",
            name=dominant_name(schedule),
        )
    rows = [row for row in rows if row not in schedule]
    found = threshold_rows("optimizer", run, rows, MAX_BESIDE) if rows else None
    if not isinstance(found, ExceededBound):
        return found
    optimizers, tables = run.facts.optimizers or (), _large_tables(run)
    code = run.facts.stacks.get(f"{Phase.OPTIMIZER} {rows[0].name}") if any(one.is_own for one in optimizers) else None
    lines = f": {code.describe(found.mean_share)}" if code is not None and code.named else ""
    return found.finding(
        f"the optimizer takes {found}{lines}",
        _RARELY if found.rare else _SPARSE.format(enumerate_names(tables)) if tables else advise_faster(optimizers),
        name=dominant_name(rows),
        # Some optimizer time remains in any case, and nothing measures how much: the gain is the part above the bound.
        gain_ns=found.mean_ns - MAX_BESIDE * run.summary.step_mean_ns
        if found.rare is None
        else found.rare.share.middle * run.summary.step_mean_ns,
        evidence={"kinds": [one.kind for one in optimizers]} if optimizers else {},
        # An update costs its parameters, whatever the batch is: without one of these nothing makes it longer.
        is_note=not (found.rare or tables or any(one.is_slowed for one in optimizers)),
    )


def _large_tables(run: Evidence) -> list[str]:
    """Return the embeddings of which a step reads few rows, where they have nearly all parameters."""
    tables = run.sparsely_read()
    whole = (run.summary.memory_table[0].parameter_bytes or 0) if tables else 0
    return list(tables) if whole and sum(tables.values()) >= NEARLY_ALL * whole else []


RULE = Rule("optimizer", judge, order=60, experiment=Experiment("optimizer.fused", value=True))
