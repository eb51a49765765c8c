"""Rule ``repeated-backward``: backward goes through the graphs of earlier steps again.

A backward pass goes through each forward of its step once at most, also for a gradient penalty or several losses. What
runs more often than the forwards and passes of a step allow belongs to other steps.

Finds, above a bound:

- modules whose backward runs more often than once for each forward and each backward pass of a step, because state is
  carried from step to step with its graph: 1.5 x, and 10 % of the step more.
"""

from __future__ import annotations

from ...base.frame import BACKWARD_NAME, Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding, Row
from ...base.units import format_count
from .. import Evidence, ExceededBound, Rule, edit_module, threshold_time
from .._bounds import REPEATED


def judge(run: Evidence) -> Finding | None:
    """Judge the backward beyond one for each forward and each pass, by counts of calls."""
    backward = run.rows.get(Phase.BACKWARD, [])
    passes = sum(row.calls for row in backward if row.name == BACKWARD_NAME) / max(run.summary.steps, 1)
    forward = {row.name: row for row in run.rows.get(Phase.FORWARD, []) if row.fqn is not None}
    repeated = [row for row in backward if _times(forward, row) >= REPEATED * max(passes, 1.0)]
    if not repeated or not passes:
        return None
    parts = [(1 - 1 / _times(forward, row), run.self_time([row])) for row in repeated]
    excess = Interval(*(sum(part * time[at] for part, time in parts) for at in range(3)))
    mean_ns = sum(part * row.self_ns for (part, _), row in zip(parts, repeated, strict=True)) / run.summary.steps
    found = threshold_time("repeated-backward", run, excess, mean_ns, phase=Phase.BACKWARD)
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
