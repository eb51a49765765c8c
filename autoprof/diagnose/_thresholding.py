"""Compare a value with a bound, and build the answer of a rule: a finding or an abstention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..base.frame import MODULE_PHASES, Phase
from ..base.stats.intervals import Interval
from ..base.summary import Finding, Row, Severity, Work
from ..base.units import format_ms, format_percent
from ._bounds import CAUSE_SHARE, LARGE_SHARE, MARGIN, MIN_SHARE, MOST, NEARLY_ALL, SEVERAL
from ._contention import changes, is_crowded
from ._evidence import Evidence
from ._rare import RareTime

Position = Literal["above", "near", "below"]


def classify(value: Interval, bound: float) -> Position:
    """Return the position of a value relative to a bound; the whole interval and the margin decide."""
    if value.low >= bound * (1 + MARGIN):
        return "above"
    return "below" if value.high <= bound * (1 - MARGIN) else "near"


def is_above(value: float, bound: float) -> bool:
    """Return whether a figure without an uncertainty is certainly above a bound."""
    return value >= bound * (1 + MARGIN)


def share_evidence(share: Interval, bound: float, steps: int) -> dict[str, Any]:
    """Return a share of the step and its bound as the evidence of a finding."""
    low, middle, high = (round(part, 4) for part in share)
    return {"share": middle, "share_low": low, "share_high": high, "bound": bound, "steps": steps}


def abstain(rule: str, missing: str, remedy: str, evidence: Mapping[str, Any] | None = None) -> Finding:
    """Return an abstention: the rule cannot judge, ``missing`` names the signal, ``remedy`` how to get it."""
    why = missing if missing.startswith("inconclusive") else f"missing: {missing}"
    return Finding(rule, "info", why, remedy, evidence={"missing": missing, **(evidence or {})})


def inconclusive(rule: str, share: Interval, bound: float, evidence: Mapping[str, Any]) -> Finding:
    """Return the abstention for a share of the step that is too near to its bound, or too uncertain."""
    spread = f"{format_percent(share.low)} to {format_percent(min(share.high, 1.0))}"
    missing = f"inconclusive: {spread} of the step; the bound is {format_percent(bound)}"
    return abstain(rule, missing, "a longer run narrows the interval", evidence)


@dataclass(frozen=True, slots=True)
class ExceededBound:
    """A time that is clearly above its bound: the basis of a finding."""

    rule: str
    mean_ns: float
    share: Interval
    mean_share: float
    bound: float
    phase: Phase | None
    evidence: Mapping[str, Any]
    rare: RareTime | None = None
    """The steps that spend this time, if only some do."""

    def __str__(self) -> str:
        """Return the time as text: ``18.8 ms (20.2 % of the step)``."""
        if self.rare is not None:
            share = format_percent(self.rare.share.middle)
            return f"{format_ms(self.rare.excess_ns)} in {self.rare.when} ({share} of the run)"
        return f"{format_ms(self.mean_ns)} ({format_percent(self.mean_share)} of the step)"

    def finding(
        self,
        why: str,
        next: str,
        *,
        name: str | None = None,
        gain_ns: float | None = None,
        evidence: Mapping[str, Any] | None = None,
        is_note: bool = False,
    ) -> Finding:
        """Return the finding; without ``gain_ns`` the whole mean time can be gained, of a note nothing."""
        critical = self.share.low >= max(SEVERAL * self.bound, LARGE_SHARE)
        severity: Severity = "critical" if critical else "warning"
        gain = round(self.mean_ns if gain_ns is None else gain_ns)
        merged = {**self.evidence, **(evidence or {})}
        if is_note:
            return Finding(self.rule, "note", why, next, name, self.phase, evidence=merged)
        return Finding(self.rule, severity, why, next, name, self.phase, None, max(gain, 0), merged)


def threshold_time(
    rule: str,
    run: Evidence,
    ns: Interval,
    mean_ns: float,
    bound: float = MIN_SHARE,
    phase: Phase | None = None,
    *,
    step: Interval | None = None,
) -> ExceededBound | Finding | None:
    """Compare a time of each step with its bound, a share of the step.

    Return ``ExceededBound`` above the bound, an abstention near it, None below it. The interval of the median ``ns``
    decides, so that one stall is no finding. The mean is reported: tables show it, and it adds up to the run's length.
    ``step`` is the step's time if ``ns`` is not the interval of a median.
    """
    share = ns.over(step or run.step_time)
    evidence = {"mean_ns": round(mean_ns), "p50_ns": round(ns.middle)}
    evidence |= share_evidence(share, bound, run.summary.steps)
    position, mean_share = classify(share, bound), mean_ns / run.summary.step_mean_ns
    if position == "above":
        return ExceededBound(rule, mean_ns, share, mean_share, bound, phase, evidence)
    return inconclusive(rule, share, bound, evidence) if position == "near" else None


def threshold_phase(
    rule: str,
    run: Evidence,
    ns: Interval,
    mean_ns: float,
    bound: float,
    phase: Phase,
    *,
    step: Interval | None = None,
    explained_ns: float = 0.0,
) -> ExceededBound | Finding | None:
    """Compare the time of a phase with its bound (``threshold_time``), or else the part that only some steps take.

    That is judged by its sum over the run, as a tenth of it, without the mean time ``explained_ns`` that other rules
    judge. Where the time is that of some steps in any case, these are named.
    """
    found, steps = threshold_time(rule, run, ns, mean_ns, bound, phase, step=step), run.summary.steps
    if isinstance(found, ExceededBound):
        rare = run.series.rare((phase,), _explained(run, (phase,)))
        if rare is None or rare.share.middle < CAUSE_SHARE * found.mean_share:
            return found
        return replace(found, rare=rare, evidence={**rare_evidence(rare, bound, steps), **found.evidence})
    rare = rare_time(run, (phase,))
    if rare is None:
        return found
    share = Interval(*(max(part - explained_ns / run.summary.step_mean_ns, 0.0) for part in rare.share))
    is_theirs = share.middle * run.summary.step_mean_ns <= (1 + MARGIN) * mean_ns  # and not that of the phase's others
    if classify(share, MIN_SHARE) != "above" or not is_theirs:
        return found
    evidence = rare_evidence(rare, MIN_SHARE, steps)
    return ExceededBound(rule, mean_ns, share, mean_ns / run.summary.step_mean_ns, MIN_SHARE, phase, evidence, rare)


def threshold_rows(
    rule: str, run: Evidence, rows: list[Row], bound: float = MIN_SHARE
) -> ExceededBound | Finding | None:
    """Compare the self time of rows, all of one phase, with its bound: see ``threshold_phase``."""
    mean_ns = sum(row.self_ns for row in rows) / run.summary.steps
    return threshold_phase(rule, run, run.self_time(rows), mean_ns, bound, rows[0].phase)


def phase_groups(phases: Iterable[Phase]) -> set[tuple[Phase, ...]]:
    """Return the phases as groups that are judged together: those of modules are one."""
    return {MODULE_PHASES if phase.traits.in_module else (phase,) for phase in phases}


def rare_time(run: Evidence, phases: Sequence[Phase]) -> RareTime | None:
    """Return the time that some steps spend in these phases beyond the others.

    On a busy machine it has to have a rhythm, and the rest of these steps has to be as usual: else it may be the wait
    for a processor, of processes that come and go. A begin or an end is enough where these were there all the time.
    """
    found = run.series.rare(phases, _explained(run, phases))
    if found is None or not is_crowded(run):
        return found
    by_machine = found.elsewhere >= MOST or (found.every is None and (not found.has_pattern or changes(run)))
    return None if by_machine else found


def _explained(run: Evidence, phases: Sequence[Phase | None]) -> Mapping[int, float]:
    """Return the times that the steps' inputs explain, where the phases work on them."""
    on_inputs = {*MODULE_PHASES, Phase.OTHER}
    return run.facts.explained if on_inputs.issuperset(phases) else {}


def rare_evidence(rare: RareTime, bound: float, steps: int) -> dict[str, Any]:
    """Return time that only some steps take as the evidence of a finding."""
    return share_evidence(rare.share, bound, steps) | {
        "rare_steps": len(rare.steps),
        "every": rare.every,
        "excess_ns": round(rare.excess_ns),
    }


def dominant_name(rows: Sequence[Row]) -> str | None:
    """Return the name of the row that has nearly all of the time; None where several rows share it."""
    longest = _longest(rows)
    return longest.name if longest.self_ns >= NEARLY_ALL * sum(row.self_ns for row in rows) else None


def describe_longest(run: Evidence, rows: Sequence[Row]) -> str:
    """Return the clause that names the longest of several rows; empty where one row has nearly all of the time."""
    longest = _longest(rows)
    return "" if dominant_name(rows) else f", {format_ms(longest.self_ns / run.summary.steps)} of it in {longest.name}"


def _longest(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: (row.self_ns, row.name))


def counted_work(rule: str, run: Evidence) -> Work | Finding:
    """Return the counted work of a step, or an abstention with the reason why there is none."""
    work = run.summary.work
    if work is not None and work.reason is None:
        return work
    reason = "" if work is None else f": {work.reason}"
    return abstain(rule, f"the FLOPs of a step{reason}", "set flops: auto, if the model can be counted")
