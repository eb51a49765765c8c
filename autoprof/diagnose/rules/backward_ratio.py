"""Rule ``backward-ratio``: backward takes much longer than twice the forward.

Finds, above a bound:

- backward beyond twice the forward, for modules that have both; torch's own products, as ``nn.Linear``, only where
  their gradients have hooks: 25 % of the step.
- backward beyond twice the forward of an embedding of which a step reads few rows: 10 % of the step.
- code of the program that runs in the backward of a module, as a loop in a custom autograd function, beyond twice the
  module's own forward: 10 % of the step.
- backward beyond twice the forward in a module that fills its output slice by slice: 10 % of the step.
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
from .._evidence import GRADIENT_HOOKS, SPARSE, is_within
from .._ledger import USUAL_RATIO
from .._stacks import StackTable

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
    if (table := _judge_table(run, names)) is not None:
        return table
    names -= {row.name for row in forward if _is_torchs_own(run, row)}
    if (filled := _judge_filled(run, names)) is not None:
        return filled
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
    return found.finding(
        f"backward takes {ratio.middle:.1f} x as long as forward; {USUAL_RATIO:.0f} x is usual. The largest excess is "
        f"in {worst}: {times:.1f} x, {format_ms(own_excess[worst] / run.summary.steps)} a step above the usual",
        GRADIENT_HOOKS if hooked else FUNCTIONS,
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


def _judge_table(run: Evidence, names: set[str]) -> Finding | None:
    """Judge the backward of an embedding of which a step reads few rows: its gradient has all of them."""
    forward, backward = (run.rows.get(phase, []) for phase in (Phase.FORWARD, Phase.BACKWARD))
    excess = {
        name: (_self_ns(backward, name) - USUAL_RATIO * _self_ns(forward, name)) / run.summary.steps
        for name in names.intersection(run.sparsely_read())
    }
    if not excess:
        return None
    name = max(excess, key=lambda one: (excess[one], one))
    ns = max(excess[name], 0.0)
    judged = threshold_time("backward-ratio", run, Interval.exact(ns), ns, MIN_SHARE, Phase.BACKWARD)
    if not isinstance(judged, ExceededBound):
        return None
    return judged.finding(
        f"the backward of {name} takes {judged} longer than is usual for its forward; it is the gradient of its "
        f"{format_bytes(run.sparsely_read()[name])}, of which a step reads few rows",
        SPARSE,
        name=name,
    )


def _is_torchs_own(run: Evidence, row: Row) -> bool:
    """Return whether a row is one of torch's own layers of products, as ``nn.Linear``, without hooks on its gradients.

    Its backward is torch's alone: with large weights and few samples it writes a gradient into fresh memory,
    at many times the time of the forward.
    """
    size = run.size(row.fqn)
    products = "torch.nn.modules.linear.", "torch.nn.modules.conv."
    return size is not None and size.kind.startswith(products) and not size.has_hooks


def _judge_filled(run: Evidence, names: set[str]) -> Finding | None:
    """Judge the backward inside of a module that fills its output slice by slice.

    By the mean: the copies take much longer in steps in which memory has to be fetched from the system for them.
    """
    forward, backward = (run.rows.get(phase, []) for phase in (Phase.FORWARD, Phase.BACKWARD))
    found = []
    for row in forward:
        size = run.size(row.fqn)
        if size is None or not size.is_filled:
            continue
        inside = {one.name for one in forward if one.name in names and is_within(one, row.fqn or "")}
        ns = sum(_self_ns(backward, name) - USUAL_RATIO * _self_ns(forward, name) for name in inside)
        found.append((max(ns, 0.0) / run.summary.steps, row.name, row.fqn))
    if not found:
        return None
    ns, name, fqn = max(found)
    judged = threshold_time("backward-ratio", run, Interval.exact(ns), ns, MIN_SHARE, Phase.BACKWARD)
    if not isinstance(judged, ExceededBound):
        return None
    return judged.finding(
        f"the backward of {name} takes {judged} longer than is usual for its forward: it fills its output slice by "
        "slice, and for each write backward copies the gradient of the whole",
        "collect the parts in a list and join them once, by torch.stack or torch.cat",
        name=name if fqn else None,  # the model's own backward is the phase
    )


def _self_ns(rows: list[Row], name: str) -> int:
    return sum(row.self_ns for row in rows if row.name == name)


RULE = Rule("backward-ratio", judge, order=40, host_times=False, experiment=edit_module)
