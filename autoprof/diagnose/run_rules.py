"""Rules on the run as a whole: outlier steps and their cause, autoprof's own cost."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Any, NamedTuple

from .._session.governor import COMPARED_STEPS, FIRST_CONTROL_INTERVAL, FIRST_STEPS, MIN_PAIRS
from .._stats.rows import step_rows
from .._units import format_ms, format_percent
from ..frame import TRAINING_LANE, Phase
from ..summary import Finding, Summary
from .evidence import Evidence, Interval, LongStep
from .interval import proportion
from .signal_rules import recompile
from .thresholding import abstain, near, stand
from .thresholds import CLOCK_DROP, COLLECTED, JITTER_SHARE, JITTER_STEPS, JITTER_TIMES, MARGIN, OVERHEAD_STEPS

GARBAGE = "garbage collection"
CLOCK_NAME = "device clock"


class Cause(NamedTuple):
    """What most of the time that long steps have over the median went to."""

    name: str | None
    phase: Phase | None
    why: str
    next: str
    rank: int | None = None


def jitter(seen: Evidence) -> Finding | None:
    """Steps several times as long as the median, often enough to be a habit; with what made them long."""
    run = seen.summary
    lost = run.step_mean_ns - run.step_p50_ns
    share = lost / max(run.step_mean_ns, 1)
    facts: dict[str, Any] = {"lost_ns": lost, "share": round(share, 4), "bound": JITTER_SHARE, "steps": run.steps}
    long = [step for step in seen.longest or () if step.step_ns >= JITTER_TIMES * run.step_p50_ns]
    interval = _lost(seen, lost, len(long))
    facts.update(share_low=round(interval.low, 4), share_high=round(interval.high, 4))
    standing = stand(interval, JITTER_SHARE)
    if standing == "below" or _compiling(seen, lost):
        return None
    if seen.longest is None:
        return abstain("jitter", "the records of the longest steps", "keep the sink jsonl on", facts)
    numbers = sorted(step.step for step in long)
    facts = {**facts, "outliers": numbers, "longest_ns": run.step_max_ns}
    if len(long) < JITTER_STEPS or standing == "near":
        missing = f"inconclusive: {len(long)} outlier steps, {format_percent(share)} of all time lost to long steps"
        return abstain("jitter", missing, "more recorded steps tell a habit from an accident", facts)
    cause = _cause(seen, long)
    return Finding(
        "jitter",
        "warning",
        f"steps such as {', '.join(map(str, numbers[:3]))} take up to {format_ms(run.step_max_ns)}, the median step "
        f"{format_ms(run.step_p50_ns)}: {format_percent(share)} of all time. {cause.why}",
        cause.next,
        cause.name,
        cause.phase,
        cause.rank,
        gain_ns=lost,
        evidence={**facts, "cause": cause.name or ("other" if cause.rank is None else f"rank {cause.rank}")},
    )


def _compiling(seen: Evidence, lost_ns: int) -> bool:
    """Say whether most of what long steps lose went to compiling, of which ``recompile`` speaks: once is enough."""
    compiled = seen.facts.compiled
    if compiled is None or 2 * compiled.ns < lost_ns * seen.summary.steps:
        return False
    said = recompile(seen)
    return said is not None and said.severity != "info"


def _lost(seen: Evidence, lost_ns: int, kept: int) -> Interval:
    """Return what share of all time long steps lose, as uncertain as it is how many of them a run happens to have.

    Of the longest steps only some are kept; there are at least as many as it takes to lose so much, were all as long
    as the longest.
    """
    run = seen.summary
    most = max(run.step_max_ns - run.step_p50_ns, 1)
    count = min(max(kept, round(lost_ns * run.steps / most)), run.steps)
    low, high = proportion(count, run.steps) if count > 0 else (1.0, 1.0)
    shares = (max(lost_ns, 0) * factor / max(run.step_p50_ns + lost_ns * factor, 1) for factor in (low, 1.0, high))
    return Interval(*shares)


def _cause(seen: Evidence, long: list[LongStep]) -> Cause:
    return _collected(seen, long) or _clock_drop(seen, long) or _other_rank(seen, long) or _span(seen, long)


def _collected(seen: Evidence, long: list[LongStep]) -> Cause | None:
    collected = len({step.step for step in long} & set(seen.facts.collected or ()))
    others = max(seen.facts.collections - collected, 0)
    rest = max(seen.summary.steps - len(long), 1)
    if collected < COLLECTED * len(long) or 2 * others / rest > collected / len(long):
        return None
    why = (
        f"A full garbage collection ran in {collected} of the {len(long)} longest of them, and in {others} of "
        f"{rest} other steps."
    )
    return Cause(GARBAGE, None, why, "gc.freeze() after set-up, gc.disable() with a gc.collect() between epochs")


def _clock_drop(seen: Evidence, long: list[LongStep]) -> Cause | None:
    """Say whether the device's clock was low in these steps; nothing where it was not read."""
    usual = seen.clock_mhz
    low = [step.clock_mhz for step in long if usual and step.clock_mhz and step.clock_mhz <= CLOCK_DROP * usual]
    if usual is None or len(low) < COLLECTED * len(long):
        return None
    why = (
        f"The device's clock was down to {min(low):.0f} MHz in {len(low)} of the {len(long)} longest of them, of "
        f"{usual:.0f} MHz usually."
    )
    return Cause(
        CLOCK_NAME, None, why, "look at the device's temperature and power limit (nvidia-smi -q -d PERFORMANCE)"
    )


def _other_rank(seen: Evidence, long: list[LongStep]) -> Cause | None:
    """Say whether another rank's own work made these steps long, for which this one only waited."""
    blamed = {} if seen.facts.ranks is None else seen.facts.ranks.long_steps
    ranks = Counter(blamed[str(step.step)] for step in long if str(step.step) in blamed)
    if not ranks:
        return None
    (rank, count), *_ = ranks.most_common(1)
    if rank == seen.facts.rank or count < COLLECTED * len(long):
        return None
    why = f"In {count} of the {len(long)} longest of them rank {rank} worked that much longer, and the others waited."
    return Cause(None, None, why, f"look at the rows of rank {rank}'s steps.jsonl in these steps", rank)


def _span(seen: Evidence, long: list[LongStep]) -> Cause:
    usual = {(row.name, row.phase): row.p50_ns for row in seen.summary.rows if row.lane == TRAINING_LANE}
    blamed: Counter[tuple[str, Phase] | None] = Counter()
    whole = 0
    for step in long:
        excess = step.step_ns - seen.summary.step_p50_ns
        whole += excess
        blamed[_deepest(step, excess, usual)] += excess
    (most, ns), *_ = blamed.most_common(1)
    if most is None:
        why = "No single span explains them: the excess is outside of all spans, or spread over many."
        return Cause(None, None, why, "put spans around what happens between the modules; look at what else runs there")
    name, phase = most
    why = f"{format_percent(ns / whole)} of what they take longer is in steps where {name} ({phase}) is the cause."
    remedy = "more num_workers and a larger prefetch_factor even it out" if phase is Phase.DATA else f"look at {name}"
    return Cause(name, phase, why, remedy)


def _deepest(step: LongStep, excess: int, usual: dict[tuple[str, Phase], int]) -> tuple[str, Phase] | None:
    """Return the innermost row that alone explains half of the excess."""
    rows = step_rows(step.layout)
    found, least = None, 0
    for key, ns in zip(rows.keys, rows.totals(step.total_ns).tolist(), strict=True):
        extra = ns - usual.get((key.name, key.phase), 0)
        if key.lane == TRAINING_LANE and 2 * extra >= excess and (found is None or ns < least):
            found, least = (key.name, key.phase), ns
    return found


def overhead(seen: Evidence) -> Finding | None:
    """What autoprof itself costs, against its budget; the steps that are always recorded are paid back first."""
    run, budget = seen.summary, seen.facts.budget
    if budget is None:
        return abstain("overhead", "a budget", "set sample.budget, a fraction of the step's time")
    if run.steps < OVERHEAD_STEPS:
        missing = f"recorded steps: {OVERHEAD_STEPS} needed, {run.steps} so far"
        return abstain("overhead", missing, "let the run go on", {"overhead": run.overhead})
    share = _cost(run)
    facts = {"share": round(run.overhead, 5), "bound": budget, "steps": run.steps}
    if run.paired is not None:
        facts.update(share_low=round(share.low, 5), share_high=round(share.high, 5))
    standing = stand(share, budget) if budget else ("above" if run.overhead else "below")
    if standing != "above":
        return near("overhead", share, budget, facts) if standing == "near" else None
    recorded = run.steps + run.warmup_steps
    all_steps = recorded + run.unsampled_steps
    # A governor that works owes what its first steps and the burst that has just ended took, never more; and what
    # only pairs have told it, of all the steps before there were any.
    owed = FIRST_STEPS + COMPARED_STEPS + (0 if share.low <= run.overhead else MIN_PAIRS * FIRST_CONTROL_INTERVAL)
    later = share.low * max(recorded - owed, 0) / recorded
    if budget and later < budget * (1 + MARGIN):
        needed = ceil(all_steps * share.low / budget)
        missing = f"recorded and unrecorded steps: {needed} needed to pay for those recorded, {all_steps} so far"
        return abstain("overhead", missing, "let the run go on: steps are left alone until it is paid back", facts)
    known = "" if share.low <= run.overhead else "at least "
    return Finding(
        "overhead",
        "warning",
        f"autoprof's own work takes {known}{format_percent(share.low)} of the run's time so far; "
        f"the budget is {format_percent(budget)}",
        "nothing in a run that goes on: the governor leaves steps alone until it is paid back; else fewer targets",
        gain_ns=round((share.middle - budget) * run.step_mean_ns),
        evidence=facts,
    )


def _cost(run: Summary) -> Interval:
    """Return what autoprof costs: what its own clock has counted was spent; pairs say between what it lies beyond.

    Pairs see what is on nobody's clock, cold caches; the own clock what pairs do not, the work in gaps.
    """
    own = run.overhead
    middle, low, high = (own, own, own) if run.paired is None else run.paired.of_run
    return Interval(max(own, low), max(own, middle), max(own, high))
