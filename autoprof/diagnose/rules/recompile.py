"""Rule ``recompile``: torch compiles functions again and again during training.

Finds, above a bound:

- functions that torch compiles again after the warm-up, with module and reason: 10 % of all time and 3 times; or
  torch gave up.
"""

from __future__ import annotations

from ...base.names import shorten
from ...base.summary import Finding, Severity
from ...base.units import format_ns, format_percent
from .. import Evidence, Experiment, Rule, abstain
from .._bounds import MIN_SHARE, PATTERN
from .._calls import format_place
from .._thresholding import is_above


def judge(run: Evidence) -> Finding | None:
    """Judge the recompilations; a function that torch has stopped compiling is critical."""
    compiled = run.facts.compiled
    if compiled is None:
        return abstain("recompile", "the count of compilations", "TORCH_LOGS=recompiles prints them")
    functions = compiled.functions
    if not functions:
        return None
    count, gave_up = sum(one.count for one in functions), [one for one in functions if one.gave_up]
    share = compiled.ns / max(compiled.run_ns, 1)
    if not gave_up and (count < PATTERN or not is_above(share, MIN_SHARE)):
        return None
    worst = (gave_up or functions)[0]
    limit = f"; torch has stopped compiling {worst.function} and runs it uncompiled from then on" if gave_up else ""
    because = f", because {worst.reason}" if worst.reason else ""
    name = f"{worst.function} of {shorten(', '.join(worst.modules), 80)}" if worst.modules else worst.function
    severity: Severity = "critical" if gave_up else "warning"
    return Finding(
        "recompile",
        severity,
        f"torch compiled again in {compiled.compiled_steps} of {compiled.steps} steps ({count} times, "
        f"{format_ns(compiled.ns)} in total, {format_percent(share)} of the time of all steps): {name} at "
        f"{format_place(worst.file, worst.line)}{because}{limit}",
        "use the same shapes in every step (pad or bucket the batches, drop_last=True), mark changing dimensions with "
        "torch._dynamo.mark_dynamic or dynamic=True, and turn changing numbers into tensors",
        worst.function,
        gain_ns=round(compiled.ns / max(compiled.steps, 1)),
        evidence={
            "count": count,
            "ns": compiled.ns,
            "share": round(share, 4),
            "bound": MIN_SHARE,
            "steps": compiled.steps,
            "functions": [
                {
                    "function": one.function,
                    "modules": list(one.modules),
                    "where": format_place(one.file, one.line),
                    "count": one.count,
                    "reason": one.reason,
                    "gave_up": one.gave_up,
                }
                for one in compiled.functions
            ],
        },
    )


RULE = Rule(
    "recompile",
    judge,
    order=180,
    needs_steps=False,  # a step in which torch compiles is no recorded step: all of them may be such
    experiment=Experiment("shapes.constant", value=True, quantity="wall_ns"),
)
