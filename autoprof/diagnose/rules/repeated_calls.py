"""Rule ``repeated-calls``: calls of a module return the values that an earlier call of the same step has returned.

Results are compared: with dropout or noise two calls differ. Recomputation is no repetition. Where all that is called
repeats, and each time with a backward pass, the batches of a step are the same, as in a benchmark.

Finds, above a bound:

- modules of which calls return the values of an earlier call of the step, forward and backward of these calls, with the
  lines that call them: 10 % of the step.
"""

from __future__ import annotations

from ...base.frame import BACKWARD_NAME, Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding, Row
from ...base.units import format_count
from ...capture.hooks.results import is_parametrization
from .. import Evidence, ExceededBound, Rule, less_often, threshold_time
from .._bounds import MARGIN, NEARLY_ALL, REPEATED
from .._stacks import CALLS


def judge(run: Evidence) -> Finding | None:
    """Judge the time of the outermost modules whose calls are repeated, by their part of all calls."""
    forward = [row for row in run.rows.get(Phase.FORWARD, ()) if row.fqn is not None]
    backward = {row.name: row for row in run.rows.get(Phase.BACKWARD, ())}
    repeated = {row.name: row for row in forward if _part(run, row)}
    outermost = [row for row in repeated.values() if row.parent not in repeated]
    if not outermost or _has_equal_batches(run, forward, backward):
        return None
    parts = [(_part(run, row), row) for row in outermost]
    for part, row in parts[:]:
        following = backward.get(row.name)
        if following is not None:  # the calls without a backward pass may be repeated ones
            kept = (1 - part) * row.calls / min(row.calls, following.calls)
            parts.append((max(1 - kept, 0.0), following))
    times = [(part, run.row_time(row)) for part, row in parts]
    excess = Interval(*(sum(part * time[at] for part, time in times) for at in range(3)))
    mean_ns = sum(part * row.total_ns for part, row in parts) / run.summary.steps
    found = threshold_time("repeated-calls", run, excess, mean_ns)
    if not isinstance(found, ExceededBound):
        return found
    longest = max(outermost, key=lambda row: row.total_ns)
    is_alone = longest.total_ns >= NEARLY_ALL * sum(row.total_ns for row in outermost)
    others = "" if is_alone else f", as {format_count(len(outermost) - 1)} other modules do"
    calls, again = run.facts.repeated[longest.fqn or ""]
    table = run.facts.stacks.get(f"{CALLS} {longest.name}")
    lines = f": {table.describe(longest.share)}" if table is not None and table.named else ""
    return found.finding(
        f"{longest.name} returns in {again} of {calls} calls of a step the values that an earlier call of the step has "
        f"returned{others}: {found}{lines}",
        "inside of torch.nn.utils.parametrize.cached(), around the forwards of one backward pass, the parameter is "
        "computed once"
        if is_parametrization(longest.fqn or "")
        else "keep the result of the first call and use it again",
        name=longest.name if is_alone and longest.fqn else None,  # the names inside the model are without its own
        evidence={"calls": calls, "repeated": again, **(table.evidence() if table else {})},
    )


def _part(run: Evidence, row: Row) -> float:
    """Return the part of a row's calls that is repeated; 0 where the step that was noted had more calls than others."""
    calls, again = run.facts.repeated.get(row.fqn or "", (1, 0))
    usual = row.calls / max(run.summary.steps, 1) / run.members(row)
    return again / max(calls, usual) if calls <= (1 + MARGIN) * usual else 0.0


def _has_equal_batches(run: Evidence, forward: list[Row], backward: dict[str, Row]) -> bool:
    """Return whether a step has several backward passes, and all that is called in it repeats."""
    there = backward.get(BACKWARD_NAME)
    names = {row.name for row in forward}
    return (
        there is not None
        and there.calls >= REPEATED * run.summary.steps
        and all(row.fqn in run.facts.repeated for row in forward if row.parent not in names)
    )


RULE = Rule(
    "repeated-calls",
    judge,
    order=44,
    host_times=False,  # calls are counted on any machine
    experiment=less_often,
)
