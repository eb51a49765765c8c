"""Rule ``forward-only``: calls of a module have no backward pass, so their results may be unused.

Metrics can be computed from the outputs at hand, and features of a frozen part can be kept; a rollout, a teacher or an
encoder of negatives needs its calls. Nothing tells these apart, so it is a note.

Finds, above a bound:

- modules of which some forwards have a backward pass and others have none, with the lines that call them; or of which
  none has one, though each makes a graph in a model that is trained: 10 % of the step in those without. A note.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...base.frame import Phase
from ...base.summary import Finding, Row
from ...base.units import format_count, format_ms, format_percent
from .. import Evidence, Rule, less_often
from .._bounds import MIN_SHARE
from .._stacks import CALLS
from .._thresholding import is_above


def judge(run: Evidence) -> Finding | None:
    """Judge the outermost modules with fewer backward passes than forwards, by the share of the calls."""
    steps, step_ns = max(run.summary.steps, 1), max(run.summary.total_step_ns, 1)
    forward = [row for row in run.rows.get(Phase.FORWARD, ()) if row.fqn is not None]
    passes = {row.name: row.calls for row in run.rows.get(Phase.BACKWARD, ())}
    trained = {*passes} | {
        row.name for row in forward if row.parent in passes and (size := run.size(row.fqn)) is not None and size.nodes
    }
    few = {
        row.name
        for row in forward
        if row.name in trained and is_above(row.total_ns / step_ns * _unused_part(row, passes), MIN_SHARE)
    }
    outermost = [row for row in forward if row.name in few and row.parent not in few - {row.name}]
    longest = max(outermost, key=lambda row: row.total_ns, default=None)
    if longest is None:
        return None
    used, share = passes.get(longest.name, 0), longest.total_ns / step_ns
    table = run.facts.stacks.get(f"{CALLS} {longest.name}")
    lines = f": {table.describe(share)}" if table is not None and table.named else ""
    calls = format_count(longest.calls / steps)
    often = f"{longest.name} is called {'once' if calls == '1' else f'{calls} times'} a step, and"
    time = f"{format_ms(longest.total_ns / steps)} ({format_percent(share)} of the step)"
    return Finding(
        "forward-only",
        "note",
        f"{often} {format_count(used / steps)} of the calls have a backward pass. All its forwards take {time}{lines}"
        if used
        else f"{often} none of the calls has a backward pass, though each makes a graph for one: {time}{lines}",
        "are the results of the others used? What the loss has computed, as outputs for a metric, need not be computed "
        "again, and features that do not change can be kept; else call it under torch.no_grad(), and on a larger batch"
        if used
        else "is its result used? If so, call it under torch.no_grad(); else leave it out, or add it to the loss",
        longest.name,
        Phase.FORWARD,
        evidence={"calls": longest.calls, "passes": used, **(table.evidence() if table else {})},
    )


def _unused_part(row: Row, passes: Mapping[str, int]) -> float:
    """Return the part of a row's calls that have no backward pass."""
    return 1 - min(passes.get(row.name, 0) / max(row.calls, 1), 1.0)


RULE = Rule("forward-only", judge, order=46, host_times=False, experiment=less_often)
