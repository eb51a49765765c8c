"""Rule ``overhead``: autoprof itself costs more than its budget.

Finds, above a bound:

- autoprof's own processor time: the budget.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from ...base.stats.intervals import Interval
from ...base.summary import Finding
from ...base.units import format_percent
from .. import Evidence, Experiment, Rule, abstain
from .._bounds import MANY_STEPS
from .._thresholding import is_above, share_evidence

ONE_OFF_NS: Final = 500_000_000
"""Work that is done once, as counting FLOPs, may take this long, if the training itself takes longer."""


def judge(run: Evidence) -> Finding | None:
    """Judge the overhead against the budget. The first steps, before it is known, may cost more."""
    summary, budget = run.summary, run.facts.budget
    if budget is None:
        return abstain("overhead", "a budget", "set sample.budget, a fraction of the step's time")
    share = summary.overhead
    evidence = share_evidence(Interval.exact(share), budget, summary.steps)
    if not is_above(share, budget):
        return None
    recorded, all_steps = summary.steps + summary.warmup_steps, summary.all_steps
    run_ns = all_steps * max(summary.step_mean_ns, 1)
    # The steps before autoprof first decides by its cost may cost any multiple of the budget.
    later = share * max(recorded - MANY_STEPS, 0) / recorded - (ONE_OFF_NS / run_ns if share < 1 else 0)
    if not is_above(later, budget):
        needed = ceil(all_steps * share / budget)
        missing = f"steps: {needed} needed for the budget to cover the first recorded ones, {all_steps} so far"
        return abstain("overhead", missing, "let the run continue: less is recorded than in its first steps", evidence)
    return Finding(
        "overhead",
        "warning",
        f"autoprof's overhead is {format_percent(share)} of the run's time so far; "
        f"the budget is {format_percent(budget)}",
        "nothing while the run continues: autoprof records fewer rows and fewer steps until it keeps the budget; "
        "otherwise use fewer targets",
        gain_ns=round((share - budget) * summary.step_mean_ns),
        evidence=evidence,
    )


RULE = Rule("overhead", judge, order=200, experiment=Experiment("profiler.targets", "decrease"))
