"""Rule ``overhead``: autoprof itself costs more than its budget."""

from __future__ import annotations

from math import ceil
from typing import Final

from ..._stats.intervals import Interval
from ..._stats.paired_steps import COMPARED_STEPS, START_STEPS
from ..._units import format_percent
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Defect, Rule
from .._thresholding import MARGIN, abstain, classify, inconclusive

MIN_STEPS: Final = 50
"""Recorded steps after which the governor must have settled."""


def judge(run: Evidence) -> Finding | None:
    """Judge the overhead against the budget. The first steps are recorded on a loan and paid back later."""
    summary, budget = run.summary, run.facts.budget
    if budget is None:
        return abstain("overhead", "a budget", "set sample.budget, a fraction of the step's time")
    if summary.steps < MIN_STEPS:
        missing = f"recorded steps: {MIN_STEPS} needed, {summary.steps} so far"
        return abstain("overhead", missing, "let the run continue", {"overhead": summary.overhead})
    share = _overhead(summary)
    evidence = {"share": round(summary.overhead, 5), "bound": budget, "steps": summary.steps}
    if summary.paired is not None:
        evidence.update(share_low=round(share.low, 5), share_high=round(share.high, 5))
    position = classify(share, budget) if budget else ("above" if summary.overhead else "below")
    if position != "above":
        return inconclusive("overhead", share, budget, evidence) if position == "near" else None
    recorded = summary.steps + summary.warmup_steps
    all_steps = recorded + summary.unsampled_steps
    # The debt of a working governor is at most its first steps and the last burst. The first steps have enough pairs
    # to show overhead that autoprof's own clock misses.
    owed = START_STEPS + COMPARED_STEPS
    later = share.low * max(recorded - owed, 0) / recorded
    if budget and later < budget * (1 + MARGIN):
        needed = ceil(all_steps * share.low / budget)
        missing = f"steps: {needed} needed to pay back the overhead of the recorded ones, {all_steps} so far"
        remedy = "let the run continue: steps stay unsampled until the overhead is paid back"
        return abstain("overhead", missing, remedy, evidence)
    at_least = "" if share.low <= summary.overhead else "at least "
    return Finding(
        "overhead",
        "warning",
        f"autoprof's overhead is {at_least}{format_percent(share.low)} of the run's time so far; "
        f"the budget is {format_percent(budget)}",
        "nothing while the run continues: the governor leaves steps unsampled until the overhead is paid back; "
        "otherwise use fewer targets",
        gain_ns=round((share.middle - budget) * summary.step_mean_ns),
        evidence=evidence,
    )


def _overhead(summary: Summary) -> Interval:
    """Return the overhead as a fraction: autoprof's own clock gives a lower bound, pairs of steps the interval.

    Pairs include effects that no clock shows, such as cold caches; the own clock includes work during gaps, which
    pairs do not.
    """
    own = summary.overhead
    middle, low, high = (own, own, own) if summary.paired is None else summary.paired.of_run
    return Interval(max(own, low), max(own, middle), max(own, high))


def train_in_short_steps(broken: bool) -> Summary:
    """Train in steps of microseconds on the fake clock; the healthy twin's steps take seconds.

    autoprof's overhead takes real time in both.
    """
    from ...demo.defects import four_layers, train
    from ...testing import FakeClock

    clock = FakeClock()
    model = four_layers(clock, forward_ms=0.001 if broken else 500)
    return train(model, clock, steps=600, each_ms=0, wait_ms=0)


RULE = Rule(
    "overhead",
    judge,
    order=200,
    defects=(Defect("steps too short to profile", train_in_short_steps),),
    needs_quiet=True,
    experiment=Experiment("profiler.targets", "decrease"),
)
