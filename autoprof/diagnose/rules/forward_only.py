"""Rule ``forward-only``: calls of a module have no backward pass, so their results may be unused.

Metrics can be computed from the outputs at hand, and features of a frozen part can be kept; a rollout, a teacher or an
encoder of negatives needs its calls. Nothing tells these apart, so it is a note.

Finds, above a bound:

- modules of which some forwards have a backward pass and others have none, with the lines that call them; or of which
  none has one, though each makes a graph in a model that is trained: 10 % of the step in those without. A note.
"""

from __future__ import annotations

from typing import Final

from ...base.frame import Phase
from ...base.summary import Finding, Row
from ...base.units import format_count, format_ms, format_percent
from .. import Evidence, Rule, less_often
from .._bounds import MIN_SHARE
from .._stacks import CALLS
from .._thresholding import is_above

BACKWARD_TIMES: Final = 1.5
"""Backward over forward of one call, below the two of theory: the first layers compute no gradient of their input."""


def judge(run: Evidence) -> Finding | None:
    """Judge the outermost modules with fewer backward passes than forwards, by the least time of the calls without."""
    steps, step_ns = max(run.summary.steps, 1), max(run.summary.total_step_ns, 1)
    forward = [row for row in run.rows.get(Phase.FORWARD, ()) if row.fqn is not None]
    backward = {row.name: row for row in run.rows.get(Phase.BACKWARD, ())}
    passes = {name: row.calls for name, row in backward.items()}
    trained = {*passes} | {
        row.name for row in forward if row.parent in passes and (size := run.size(row.fqn)) is not None and size.nodes
    }
    few = {
        row.name
        for row in forward
        if row.name in trained and is_above(_unused_ns(row, backward.get(row.name)) / step_ns, MIN_SHARE)
    }
    outermost = [row for row in forward if row.name in few and row.parent not in few - {row.name}]
    longest = max(outermost, key=lambda row: row.total_ns, default=None)
    if longest is None:
        return None
    used, share = passes.get(longest.name, 0), longest.total_ns / step_ns
    table = run.facts.stacks.get(f"{CALLS} {longest.name}")
    lines = f": {table.describe(share)}" if table is not None and table.named else ""
    spread = run.series.spread()
    rhythm = f" (long steps: {spread.when})" if spread is not None and spread.every is not None else ""
    calls = format_count(longest.calls / steps)
    often = f"{longest.name} is called {'once' if calls == '1' else f'{calls} times'} a step{rhythm}, and"
    have = "has" if format_count(used / steps) == "1" else "have"
    time = f"{format_ms(longest.total_ns / steps)} ({format_percent(share)} of the step)"
    return Finding(
        "forward-only",
        "note",
        f"{often} {format_count(used / steps)} of the calls {have} a backward pass. All its forwards take {time}{lines}"
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


def _unused_ns(row: Row, backward: Row | None) -> float:
    """Return the least time of a row's calls that have no backward pass.

    They may be the shorter ones, as those of a rollout: the backward tells how long the others take.
    """
    if backward is None:
        return row.total_ns
    part = 1 - min(backward.calls / max(row.calls, 1), 1.0)
    return min(part * row.total_ns, max(row.total_ns - backward.total_ns / BACKWARD_TIMES, 0.0))


RULE = Rule("forward-only", judge, order=46, host_times=False, experiment=less_often)
