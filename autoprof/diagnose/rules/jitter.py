"""Rule ``jitter``: some steps take several times as long as the median, with the cause.

Finds, above a bound:

- at least 3 steps of 2 x the median that no phase alone explains, as those with garbage collections: 10 % of all time.
  A note where they call the model 1.5 x as often as the mean step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base.frame import Phase
from ...base.stats.intervals import Interval, proportion_factors
from ...base.stats.median import median
from ...base.summary import Finding
from ...base.units import format_count, format_ms, format_percent
from .. import Evidence, Experiment, LongStep, Rule, abstain, classify
from .._bounds import LONG_STEP, MIN_SHARE, PATTERN, REPEATED
from .._contention import QUIET, is_crowded
from .._long_steps import GARBAGE, Cause, collection_cause, is_named_elsewhere
from .._rare import Spread, explained_times
from .._stacks import UNATTRIBUTED
from .._thresholding import phase_groups, rare_time, share_evidence


def judge(run: Evidence) -> Finding | None:
    """Judge the time lost to outlier steps, and find their cause."""
    summary = run.summary
    lost_ns = summary.step_mean_ns - summary.step_p50_ns
    sized = explained_times(np.array([step.step for step in run.longest], dtype=np.int64), run.facts.explained)
    long = zip(run.longest, sized.tolist(), strict=True)
    outliers = [step for step, times in long if step.step_ns >= LONG_STEP * times * summary.step_p50_ns]
    numbers = sorted(step.step for step in outliers)
    share = _lost_share(run, lost_ns, len(outliers))
    lost = format_percent(share.middle)
    evidence = share_evidence(share, MIN_SHARE, summary.steps)
    evidence |= {"lost_ns": lost_ns, "outliers": numbers, "longest_ns": summary.step_max_ns}
    position = classify(share, MIN_SHARE)
    if position == "below" or is_named_elsewhere(run, outliers, lost_ns):
        return None
    cause = collection_cause(run, outliers) if outliers else None
    if cause is None and any(rare_time(run, phases) is not None for phases in phase_groups((*run.rows, Phase.OTHER))):
        return None  # the rule of this phase judges it
    if len(outliers) < PATTERN or position == "near":
        missing = f"inconclusive: {len(outliers)} outlier steps, {lost} of all time lost to long steps"
        return abstain("jitter", missing, "a longer run shows whether long steps recur", evidence)
    examples = tuple(numbers)
    if cause is None:
        spread = run.series.spread()
        if spread is not None and spread.every is not None:
            examples = spread.steps
        elif is_crowded(run):
            return abstain("jitter", QUIET, "stop them and measure again", evidence)
        cause = _spread_cause(run, spread)
    evidence["cause"] = cause.name or "other"
    calls, usual = _model_calls(run, outliers)
    is_more_work = cause.name is None and calls >= REPEATED * max(usual, 1)
    more = f" They call the model {format_count(calls)} times, the mean step {format_count(usual)} times."
    more = more if is_more_work else ""
    return Finding(
        "jitter",
        "note" if is_more_work else "warning",
        f"steps such as {', '.join(map(str, examples[:3]))} take up to {format_ms(summary.step_max_ns)}, the median "
        f"step {format_ms(summary.step_p50_ns)}; long steps cost {lost} of all time. {cause.why}{more}",
        cause.next,
        cause.name,
        gain_ns=None if is_more_work else lost_ns,
        evidence=evidence,
    )


def _model_calls(run: Evidence, outliers: Sequence[LongStep]) -> tuple[float, float]:
    """Return how often a long step calls the outermost modules, by the median, and how often the mean step does.

    A loop that collects experience before some of its updates has more work in these.
    """
    forward = [row for row in run.rows.get(Phase.FORWARD, ()) if row.fqn is not None and row.parent is None]
    calls = [
        sum(
            step.layout.calls[at]
            for at in step.layout.roots.tolist()
            if step.layout.fqns[at] is not None and step.layout.phases[at] is Phase.FORWARD
        )
        for step in outliers
    ]
    return float(median(calls)) if calls else 0.0, sum(row.calls for row in forward) / max(run.summary.steps, 1)


def _lost_share(run: Evidence, lost_ns: int, kept_outliers: int) -> Interval:
    """Return the share of all time lost to long steps; its uncertainty is that of their number.

    Only some of the longest steps are kept. There are at least as many as it takes to lose this much time if all
    were as long as the longest.
    """
    summary = run.summary
    most_ns = max(summary.step_max_ns - summary.step_p50_ns, 1)
    count = min(max(kept_outliers, round(lost_ns * summary.steps / most_ns)), summary.steps)
    low, high = proportion_factors(count, summary.steps) if count > 0 else (1.0, 1.0)
    return Interval(
        *(max(lost_ns, 0) * factor / max(summary.step_p50_ns + lost_ns * factor, 1) for factor in (low, 1.0, high))
    )


def _spread_cause(run: Evidence, spread: Spread | None) -> Cause:
    """Return the phases that have the extra time, where none alone has it."""
    table = run.facts.stacks.get(UNATTRIBUTED)
    parts = [] if spread is None else [(phase, part) for phase, part in spread.parts if part >= MIN_SHARE]
    shares = ", ".join(
        f"{format_percent(part)} {'in no span' if phase is Phase.OTHER else phase}" for phase, part in parts
    )
    where = f": in {spread.when} the extra time is {shares}" if spread and shares else ""
    compare = "compare these steps with the others, name by name: autoprof report"
    is_outside = not parts or Phase.OTHER in dict(parts)
    advice = f"put spans around the code between the modules; {compare}" if is_outside else compare
    line = table.described if table is not None and table.dominant and Phase.OTHER in dict(parts) else ""
    took = f" Of the time in no span, {line} takes nearly all." if line else ""
    return Cause(None, f"No phase alone explains them{where}.{took}", advice)


def _experiment(finding: Finding) -> Experiment:
    """Return the change for the cause that was found."""
    return Experiment("gc.freeze", value=True) if finding.name == GARBAGE else Experiment("span.add", "edit")


RULE = Rule(
    "jitter",
    judge,
    order=140,
    host_times=False,  # judged above, by the cause
    experiment=_experiment,
)
