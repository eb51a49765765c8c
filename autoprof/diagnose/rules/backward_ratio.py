"""Rule ``backward-ratio``: backward takes much longer than twice the forward.

Finds, above a bound:

- backward beyond twice the forward, for modules that have both; torch's own products, as ``nn.Linear``, only where
  their gradients have hooks: 25 % of the step.
- code of the program that runs in the backward of a module, as a loop in a custom autograd function, beyond twice the
  module's own forward: 10 % of the step.
"""

from __future__ import annotations

from typing import Final

from ...base.frame import Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding, Row
from ...base.units import format_bytes, format_ms
from .. import Evidence, ExceededBound, Rule, abstain, edit_module, threshold_time
from .._bounds import GOOD_PART, MIN_SHARE, REPEATED, SEVERAL
from .._contention import QUIET, is_crowded
from .._evidence import GRADIENT_HOOKS, SPARSE
from .._stacks import StackTable

USUAL_RATIO: Final = 2.0
"""Backward over forward in theory: two products for one, for the gradients of the input and of the weights (Kaplan
et al. 2020, arXiv:2001.08361, section 2.1)."""

FUNCTIONS: Final = (
    "look for indexing, scatter or a custom autograd function in that module: their backward accumulates where forward "
    "only reads"
)


def judge(run: Evidence) -> Finding | None:
    """Judge backward beyond twice the forward, over the modules that have spans of both."""
    forward, backward = (run.rows.get(phase, []) for phase in (Phase.FORWARD, Phase.BACKWARD))
    calls = {row.name: row.calls for row in forward}
    # A module whose backward runs several times for one forward has another cause.
    names = {row.name for row in backward if 0 < row.calls < REPEATED * calls.get(row.name, 0)}
    if not names:
        return abstain("backward-ratio", "modules with both forward and backward spans", "name modules as targets")
    if (code := _judge_code(run, [row for row in backward if row.name in names])) is not None:
        return code
    names -= {row.name for row in forward if _is_torchs_own(run, row)}
    there, back = (run.self_time([row for row in rows if row.name in names]) for rows in (forward, backward))
    excess = Interval(*(max(back[at] - USUAL_RATIO * there[2 - at], 0.0) for at in range(3)))
    found = threshold_time("backward-ratio", run, excess, excess.middle, GOOD_PART, Phase.BACKWARD)
    if not isinstance(found, ExceededBound):
        return found
    ratio = back.over(there)
    own_excess = {name: _self_ns(backward, name) - USUAL_RATIO * _self_ns(forward, name) for name in names}
    worst = max(own_excess, key=lambda name: (own_excess[name], name))
    times = _self_ns(backward, worst) / max(_self_ns(forward, worst), 1)
    sizes = (run.size(row.fqn) for row in forward if row.name == worst)
    hooked = any(size is not None and size.has_hooks for size in sizes)
    # On a busy machine forward and backward wait alike, so a ratio of three times the usual is the program's own; so is
    # any where hooks on the gradients explain it.
    if not hooked and ratio.low < SEVERAL * USUAL_RATIO and is_crowded(run):
        return abstain("backward-ratio", QUIET, "stop them and measure again", found.evidence)
    table = run.sparsely_read().get(worst, 0)
    whole = f"; it is the gradient of its {format_bytes(table)}, of which a step reads few rows" if table else ""
    return found.finding(
        f"backward takes {ratio.middle:.1f} x as long as forward; {USUAL_RATIO:.0f} x is usual. The largest excess is "
        f"in {worst}: {times:.1f} x, {format_ms(own_excess[worst] / run.summary.steps)} a step above the usual{whole}",
        GRADIENT_HOOKS if hooked else SPARSE if table else FUNCTIONS,
        name=worst,
        evidence={"ratio": round(ratio.middle, 2)},
    )


def _judge_code(run: Evidence, backward: list[Row]) -> Finding | None:
    """Judge the lines of the program that were sampled in the backward of the modules."""
    forward = {row.name: row for row in run.rows.get(Phase.FORWARD, [])}
    found: list[tuple[float, Row, ExceededBound, StackTable]] = []
    for row in backward:
        table = run.facts.stacks.get(f"{Phase.BACKWARD} {row.name}")
        if table is None or not (code := table.code_in_backward).lines:
            continue
        there, back = run.self_time([forward[row.name]]), run.self_time([row])
        beyond = Interval(
            *(max(min(back[at] - USUAL_RATIO * there[2 - at], code.lines_share * back[at]), 0.0) for at in range(3))
        )
        judged = threshold_time("backward-ratio", run, beyond, beyond.middle, MIN_SHARE, Phase.BACKWARD)
        if isinstance(judged, ExceededBound):
            found.append((beyond.middle, row, judged, code))
    if not found:
        return None
    _, row, judged, code = max(found, key=lambda one: one[0])
    own_ns = row.self_ns / run.summary.steps
    return judged.finding(
        f"the backward of {row.name} itself takes {format_ms(own_ns)} of the step, {format_ms(judged.mean_ns)} more "
        f"than is usual for its forward, and code of the program runs there: "
        f"{code.describe(own_ns / run.summary.step_mean_ns)}",
        "look at these lines of a custom autograd function or a hook: operators on whole tensors in place of a loop "
        "in Python, or torch's own function, whose backward is compiled",
        name=row.name,
        evidence=code.evidence(),
    )


def _is_torchs_own(run: Evidence, row: Row) -> bool:
    """Return whether a row is one of torch's own layers of products, as ``nn.Linear``, without hooks on its gradients.

    Its backward is torch's alone: with large weights and few samples it writes a gradient into fresh memory,
    at many times the time of the forward.
    """
    size = run.size(row.fqn)
    products = "torch.nn.modules.linear.", "torch.nn.modules.conv."
    return size is not None and size.kind.startswith(products) and not size.has_hooks


def _self_ns(rows: list[Row], name: str) -> int:
    return sum(row.self_ns for row in rows if row.name == name)


RULE = Rule("backward-ratio", judge, order=40, host_times=False, experiment=edit_module)
