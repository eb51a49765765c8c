"""Rule ``repeated-backward``: backward goes through a graph again, of this step or of earlier ones.

A backward pass goes through each forward of its step once at most, also for a gradient penalty or several losses. What
runs more often than the forwards and passes of a step allow belongs to other steps. Several passes through one forward
compute the gradient of the sum of their losses, as one pass does. Where a pass records a graph of its own, for the
derivative of a derivative, a few of them are needed.

Finds, above a bound:

- modules whose backward runs more often than once for each forward and each backward pass of a step, because state is
  carried from step to step with its graph: 1.5 x, and 10 % of the step more.
- modules through which several backward passes of one step go, of several losses or of windows whose state is carried
  on with its graph: 1.5 x, and 10 % of the step more than in one pass. Where passes record graphs of their own, as for
  derivatives of derivatives, with the backward of these graphs and the lines that begin the passes: a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...base.frame import BACKWARD_NAME, Phase
from ...base.stats.intervals import Interval
from ...base.summary import HIGHER_ORDER, Finding, Row
from ...base.units import format_count
from .. import Evidence, ExceededBound, Rule, edit_module, threshold_time
from .._bounds import MANY, MARGIN, REPEATED

LESS_OFTEN: Final = (
    "where they are a penalty on gradients, compute it in every Nth step with N times the weight (lazy regularization, "
    "arXiv:1912.04958), or on a part of the batch; derivatives of which the sum alone is used take one pass together"
)
ALL_AT_ONCE: Final = (
    "unless each needs the result of the one before: one torch.autograd.grad of the sum of the outputs, or with "
    "grad_outputs=, gives the derivatives of all samples in one pass; torch.func.vmap(torch.func.grad(...)) those of "
    "functions of one sample"
)


def judge(run: Evidence) -> Finding | None:
    """Judge the backward beyond one for each forward and each pass, by counts of calls."""
    backward = run.rows.get(Phase.BACKWARD, [])
    passes = sum(row.calls for row in backward if row.name == BACKWARD_NAME) / max(run.summary.steps, 1)
    forward = {row.name: row for row in run.rows.get(Phase.FORWARD, []) if row.fqn is not None}
    repeated = [row for row in backward if _times(forward, row) >= REPEATED * max(passes, 1.0)]
    if not passes:
        return None
    if not repeated:
        return _judge_losses(run, forward, passes)
    found = _threshold(run, forward, repeated)
    if not isinstance(found, ExceededBound):
        return found
    longest = max(repeated, key=lambda row: row.self_ns)
    return found.finding(
        f"the backward of {longest.name} runs {format_count(_times(forward, longest))} times for each of its forwards: "
        f"it goes through the graphs of earlier steps again, {found}",
        "detach the state that a step passes to the next one (state = state.detach()), and call backward() without "
        "retain_graph=True",
        name=longest.name,
        evidence={"times": round(_times(forward, longest), 2)},
    )


def _judge_losses(run: Evidence, forward: dict[str, Row], passes: float) -> Finding | None:
    """Judge several passes of one step through the same forwards, of which one would do."""
    work = run.summary.work
    if passes < REPEATED or work is None:
        return None
    is_higher = HIGHER_ORDER in (work.reason or "")
    backward = run.rows[Phase.BACKWARD]
    shared = [row for row in backward if _times(forward, row) >= REPEATED]
    # The nodes that differentiate a gradient belong to no module.
    around = [row for row in backward if is_higher and row.name == BACKWARD_NAME]
    found = _threshold(run, forward, shared, around) if shared else None
    if not isinstance(found, ExceededBound):
        return found
    longest = max(shared, key=lambda row: row.self_ns)
    times, often = _times(forward, longest), format_count(passes)
    if is_higher:
        table = run.facts.stacks.get(f"{Phase.BACKWARD} {longest.name}")
        lines = f"; those of {longest.name} begin at {table.describe_places()}" if table and table.named else ""
        why = (
            f"the {often} backward passes of a step go {format_count(times)} times through each forward of "
            f"{longest.name}, and some record a graph of their own (create_graph=True). Beyond one pass through each, "
            f"and with the backward of these graphs, they take {found}{lines}"
        )
        # Derivatives need their passes; those of a solver, as conjugate gradients, need one another.
        advice = ALL_AT_ONCE if times >= MANY else LESS_OFTEN
        return found.finding(why, advice, name=longest.name, evidence={"times": round(times, 2)}, is_note=True)
    if abs(times - passes) <= MARGIN:
        why = f"{often} backward passes of a step go through one forward of {longest.name}: one pass would save {found}"
        remedy = "where the gradient of each loss alone is used, this is its cost"
    else:
        why = (
            f"the {often} backward passes of a step go {format_count(times)} times through each forward of "
            f"{longest.name}, as where a state is passed on with its graph: one pass through each would save {found}"
        )
        remedy = "or detach the state (state = state.detach()) where the gradient may end at it"
    return found.finding(
        why,
        f"add the losses up and call backward() once, which gives the same gradients; {remedy}",
        name=longest.name,
        evidence={"times": round(times, 2)},
    )


def _threshold(
    run: Evidence, forward: dict[str, Row], rows: list[Row], whole: Sequence[Row] = ()
) -> ExceededBound | Finding | None:
    """Compare the time of these rows beyond one backward for each forward, and of ``whole`` ones, with the bound."""
    parts = [(1 - 1 / _times(forward, row), row) for row in rows] + [(1.0, row) for row in whole]
    times = [(part, run.self_time([row])) for part, row in parts]
    excess = Interval(*(sum(part * time[at] for part, time in times) for at in range(3)))
    mean_ns = sum(part * row.self_ns for part, row in parts) / run.summary.steps
    return threshold_time("repeated-backward", run, excess, mean_ns, phase=Phase.BACKWARD)


def _times(forward: dict[str, Row], row: Row) -> float:
    """Return how many backwards a module has for each forward; 0 where either is not recorded."""
    there = forward.get(row.name)
    return 0.0 if there is None else row.calls / max(there.calls, 1)


RULE = Rule(
    "repeated-backward",
    judge,
    order=42,
    host_times=False,  # calls are counted on any machine
    experiment=edit_module,
)
