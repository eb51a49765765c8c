"""Causes of long steps that no phase explains, and the rules that report them."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..base.frame import Phase
from ._bounds import CAUSE_SHARE, MOST, PATTERN
from ._evidence import Evidence, LongStep

GARBAGE: Final = "garbage collection"


class Cause(NamedTuple):
    """The cause of most of the time that long steps take over the median."""

    name: str | None
    why: str
    next: str


def restarts_ns(run: Evidence) -> float:
    """Return the time of a mean step that waits for the first batch of workers that were started again.

    It is a part of the wait for data: a program that starts them early does other work meanwhile.
    """
    loader, waited_ns = run.summary.loader, run.summary.phases.get(Phase.DATA, 0) / max(run.summary.steps, 1)
    started_ns = loader["start_ns"] / max(run.summary.all_steps, 1) if loader.get("starts", 0) >= PATTERN else 0.0
    return min(started_ns, waited_ns)


def is_named_elsewhere(run: Evidence, outliers: list[LongStep], lost_ns: int) -> bool:
    """Return whether compilations, starts of workers or another rank's work made these steps long.

    Other rules report these.
    """
    if lost_ns and restarts_ns(run) >= MOST * lost_ns:
        return True
    compiled, ranks = run.facts.compiled, run.facts.ranks
    if compiled is not None and 2 * compiled.ns >= lost_ns * run.summary.steps > 0:
        return True
    slow = [one for one in ranks.slow if one.rank != run.facts.rank] if ranks is not None else []
    most = max((sum(step.step in one.steps for step in outliers) for one in slow), default=0)
    return most > 0 and most >= CAUSE_SHARE * len(outliers)


def collection_cause(run: Evidence, outliers: list[LongStep]) -> Cause | None:
    """Return garbage collections as the cause of long steps, if they ran in these and hardly in others."""
    collected = len({step.step for step in outliers} & set(run.facts.collected or ()))
    in_others = max(run.facts.collections - collected, 0)
    others = max(run.summary.steps - len(outliers), 1)
    if collected < max(CAUSE_SHARE * len(outliers), 1) or 2 * in_others / others > collected / len(outliers):
        return None
    why = (
        f"A full garbage collection ran in {collected} of the {len(outliers)} longest, and in {in_others} of "
        f"{others} other steps."
    )
    advice = "gc.freeze() after set-up, or gc.disable() and a gc.collect() between epochs"
    return Cause(GARBAGE, why, advice)
