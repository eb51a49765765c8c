"""Rule ``jitter``: some steps take several times as long as the median, with the cause."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from ..._core.units import format_ms, format_percent
from ..._stats.intervals import Interval, proportion_factors
from ..._stats.rows import step_rows
from ...frame import TRAINING_LANE, Phase
from ...summary import Finding
from .. import Evidence, Experiment, LongStep, Rule, abstain, classify, edit_module, less_often
from .._contention import FIRM, QUIET, is_crowded
from .._stacks import UNATTRIBUTED
from .._thresholding import share_evidence
from .data_wait import describe_restarts, loader_experiment

MAX_SHARE: Final = 0.10
"""Time that long steps add to the mean over the median, as a fraction of all time."""
CAUSE_SHARE: Final = 0.75
"""Fraction of the outliers in which a cause must occur; a garbage collection also twice as often as in other steps."""
GARBAGE: Final = "garbage collection"


class Cause(NamedTuple):
    """The cause of most of the time that long steps take over the median."""

    name: str | None
    phase: Phase | None
    why: str
    next: str
    by_others: bool = True
    """Whether other processes may have caused it."""


def judge(run: Evidence) -> Finding | None:
    """Judge the time lost to outlier steps, and find their cause."""
    summary = run.summary
    lost_ns = summary.step_mean_ns - summary.step_p50_ns
    # A step of at least this many medians is an outlier.
    outliers = [step for step in run.longest or () if step.step_ns >= 2.0 * summary.step_p50_ns]
    numbers = sorted(step.step for step in outliers)
    share = _lost_share(run, lost_ns, len(outliers))
    lost = format_percent(share.middle)
    evidence = share_evidence(share, MAX_SHARE, summary.steps)
    evidence |= {"lost_ns": lost_ns, "outliers": numbers, "longest_ns": summary.step_max_ns}
    position = classify(share, MAX_SHARE)
    if position == "below" or _is_named_elsewhere(run, outliers, lost_ns):
        return None
    if run.longest is None:
        return abstain("jitter", "the records of the longest steps", "keep the sink jsonl on", evidence)
    # Outliers that make a pattern: two may be one stall of the machine across two steps.
    if len(outliers) < 3 or position == "near":
        missing = f"inconclusive: {len(outliers)} outlier steps, {lost} of all time lost to long steps"
        return abstain("jitter", missing, "more recorded steps show whether long steps recur", evidence)
    cause = _collection_cause(run, outliers) or _span_cause(run, outliers)
    is_known = cause.name is not None and share.low >= FIRM * MAX_SHARE
    if cause.by_others and not is_known and is_crowded(run):
        return abstain("jitter", QUIET, "stop them and measure again", evidence)
    evidence["cause"] = cause.name or "other"
    if cause.phase is Phase.DATA:
        evidence["restarts"] = summary.loader.get("starts", 0)
    return Finding(
        "jitter",
        "warning",
        f"steps such as {', '.join(map(str, numbers[:3]))} take up to {format_ms(summary.step_max_ns)}, the median "
        f"step {format_ms(summary.step_p50_ns)}; long steps cost {lost} of all time. {cause.why}",
        cause.next,
        cause.name,
        cause.phase,
        gain_ns=lost_ns,
        evidence=evidence,
    )


def _is_named_elsewhere(run: Evidence, outliers: list[LongStep], lost_ns: int) -> bool:
    """Return whether compilations or another rank's work made these steps long: other rules report these."""
    compiled, ranks = run.facts.compiled, run.facts.ranks
    if compiled is not None and 2 * compiled.ns >= lost_ns * run.summary.steps > 0:
        return True
    slow = [one for one in ranks.slow if one.rank != run.facts.rank] if ranks is not None else []
    most = max((sum(step.step in one.steps for step in outliers) for one in slow), default=0)
    return most > 0 and most >= CAUSE_SHARE * len(outliers)


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


def _collection_cause(run: Evidence, outliers: list[LongStep]) -> Cause | None:
    collected = len({step.step for step in outliers} & set(run.facts.collected or ()))
    in_others = max(run.facts.collections - collected, 0)
    others = max(run.summary.steps - len(outliers), 1)
    if collected < CAUSE_SHARE * len(outliers) or 2 * in_others / others > collected / len(outliers):
        return None
    why = (
        f"A full garbage collection ran in {collected} of the {len(outliers)} longest, and in {in_others} of "
        f"{others} other steps."
    )
    advice = "gc.freeze() after set-up, or gc.disable() and a gc.collect() between epochs"
    return Cause(GARBAGE, None, why, advice, by_others=False)


def _span_cause(run: Evidence, outliers: list[LongStep]) -> Cause:
    usual = {(row.name, row.phase): row.p50_ns for row in run.summary.rows if row.lane == TRAINING_LANE}
    excess_by_span: Counter[tuple[str, Phase] | None] = Counter()
    for step in outliers:
        excess_ns = step.step_ns - run.summary.step_p50_ns
        excess_by_span[_innermost_cause(step, excess_ns, usual)] += excess_ns
    (span, ns), *_ = excess_by_span.most_common(1)
    if span is not None:
        name, phase = span
        part = format_percent(ns / excess_by_span.total())
        why = f"{part} of their extra time is in steps that {name} ({phase}) makes long"
        if phase is not Phase.DATA:
            return Cause(name, phase, f"{why}.", f"look at {name}")
        advice = "more num_workers and a larger prefetch_factor reduce this variation"
        return Cause(name, phase, f"{why}{describe_restarts(run)}.", advice)
    table = run.facts.stacks.get(UNATTRIBUTED)
    if table is not None and table.dominant:
        why = f"The extra time is outside all spans, where {table.dominant} takes nearly all of the time."
        advice = "do this less often, or outside of the training step: on another thread, in the loader's workers"
        return Cause(table.dominant, None, why, advice)
    why = "No single span explains them: the extra time is outside all spans, or spread over many."
    return Cause(None, None, why, "put spans around the code between the modules; check what else runs there")


def _innermost_cause(step: LongStep, excess_ns: int, usual: dict[tuple[str, Phase], int]) -> tuple[str, Phase] | None:
    """Return the innermost row that alone explains half of a step's excess over the median."""
    rows = step_rows(step.layout)
    found, shortest = None, 0
    for key, ns in zip(rows.keys, rows.totals(step.total_ns).tolist(), strict=True):
        extra_ns = ns - usual.get((key.name, key.phase), 0)
        if key.lane == TRAINING_LANE and 2 * extra_ns >= excess_ns and (found is None or ns < shortest):
            found, shortest = (key.name, key.phase), ns
    return found


def _experiment(finding: Finding) -> Experiment:
    """Return the change for the cause that was found."""
    if finding.name == GARBAGE:
        return Experiment("gc.freeze", value=True)
    if finding.name is None:
        return Experiment("span.add", "edit")
    if finding.phase is Phase.DATA:
        return loader_experiment(finding)
    return less_often(finding) if finding.phase is Phase.USER else edit_module(finding)


RULE = Rule(
    "jitter",
    judge,
    order=140,
    host_times=False,  # judged above, by the cause
    experiment=_experiment,
)
