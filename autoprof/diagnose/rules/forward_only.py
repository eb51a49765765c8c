"""Rule ``forward-only``: some calls of a module have no backward pass, so their results may be unused.

Metrics can be computed from the outputs at hand, and features of a frozen part can be kept; a rollout, a teacher or an
encoder of negatives needs its calls. Nothing tells these apart, so it is a note.

Finds, above a bound:

- modules of which some forwards have a backward pass and others have none, with the lines that call them: 10 % of the
  step in those without. A note.
"""

from __future__ import annotations

from ...base.frame import Phase
from ...base.summary import Finding
from ...base.units import format_count, format_ms, format_percent
from .. import Evidence, Rule, less_often
from .._bounds import MIN_SHARE
from .._stacks import CALLS
from .._thresholding import is_above


def judge(run: Evidence) -> Finding | None:
    """Judge the outermost modules with fewer backward passes than forwards, by the share of the calls."""
    steps = max(run.summary.steps, 1)
    passes = {row.name: row.calls for row in run.rows.get(Phase.BACKWARD, ())}
    without = {
        row.name: row.total_ns * (1 - passes[row.name] / row.calls) / max(run.summary.total_step_ns, 1)
        for row in run.rows.get(Phase.FORWARD, ())
        if row.fqn is not None and 0 < passes.get(row.name, 0) < row.calls
    }
    few = {name: share for name, share in without.items() if is_above(share, MIN_SHARE)}
    outermost = [
        row for row in run.rows.get(Phase.FORWARD, ()) if row.name in few and row.parent not in {*few} - {row.name}
    ]
    longest = max(outermost, key=lambda row: row.total_ns, default=None)
    if longest is None:
        return None
    called, used = (format_count(calls / steps) for calls in (longest.calls, passes[longest.name]))
    share = longest.total_ns / max(run.summary.total_step_ns, 1)
    table = run.facts.stacks.get(f"{CALLS} {longest.name}")
    lines = f": {table.describe(share)}" if table is not None and table.named else ""
    return Finding(
        "forward-only",
        "note",
        f"{longest.name} is called {called} times a step, and {used} of the calls have a backward pass. All its "
        f"forwards take {format_ms(longest.total_ns / steps)} ({format_percent(share)} of the step){lines}",
        "are the results of the others used? What the loss has computed, as outputs for a metric, need not be computed "
        "again, and features that do not change can be kept; else call it under torch.no_grad(), and on a larger batch",
        longest.name,
        Phase.FORWARD,
        evidence={"calls": longest.calls, "passes": passes[longest.name], **(table.evidence() if table else {})},
    )


RULE = Rule("forward-only", judge, order=46, host_times=False, experiment=less_often)
