"""Compare a value with a bound, and build the answer of a rule: a finding or an abstention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from .._core.units import format_ms, format_percent
from .._stats.intervals import Interval
from ..frame import MODULE_PHASES, Phase
from ..summary import Finding, Row, Severity, Work
from ._bounds import CAUSE_SHARE, CRITICAL, CRITICAL_SHARE, MARGIN, MIN_SHARE, NEARLY_ALL
from ._contention import SPREAD, is_crowded
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
    ) -> Finding:
        """Return the finding; without ``gain_ns`` the whole mean time can be gained."""
        critical = self.share.low >= max(CRITICAL * self.bound, CRITICAL_SHARE)
        severity: Severity = "critical" if critical else "warning"
        gain = round(self.mean_ns if gain_ns is None else gain_ns)
        merged = {**self.evidence, **(evidence or {})}
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


def or_rare(
    found: ExceededBound | Finding | None,
    rule: str,
    run: Evidence,
    mean_ns: float,
    bound: float,
    phase: Phase,
    explained_ns: float = 0.0,
) -> ExceededBound | Finding | None:
    """Judge a phase by the sum over the run where only some steps spend this time.

    ``found`` is the judgement by the time of each step: it stands, and the steps are named. ``explained_ns`` is the
    mean time of it that other rules judge.
    """
    mean_share = mean_ns / run.summary.step_mean_ns
    if isinstance(found, ExceededBound):
        rare = run.series.rare((phase,), _explained(run, (phase,)))
        if rare is None or rare.share.middle < CAUSE_SHARE * mean_share:
            return found
        return replace(found, rare=rare, evidence={**rare_evidence(rare, bound, run.summary.steps), **found.evidence})
    rare = _rare_time(run, (phase,))
    if rare is None:
        return found
    share = Interval(*(max(part - explained_ns / run.summary.step_mean_ns, 0.0) for part in rare.share))
    if classify(share, bound) != "above":
        return found
    evidence = rare_evidence(rare, bound, run.summary.steps)
    return ExceededBound(rule, mean_ns, share, mean_share, bound, phase, evidence, rare)


def threshold_rows(
    rule: str, run: Evidence, rows: list[Row], bound: float = MIN_SHARE
) -> ExceededBound | Finding | None:
    """Compare the self time of rows, all of one phase, with its bound: see ``threshold_time``.

    Where the median step has less, the sum decides over the time that only some steps take.
    """
    mean_ns = sum(row.self_ns for row in rows) / run.summary.steps
    found = threshold_time(rule, run, run.self_time(rows), mean_ns, bound, rows[0].phase)
    return or_rare(found, rule, run, mean_ns, bound, rows[0].phase)


def rare_time(run: Evidence, phase: Phase) -> RareTime | None:
    """Return the time that some steps spend in a phase beyond the others; a module's phases are one.

    On a busy machine it has to have a rhythm, a begin or an end, and the rest of these steps has to be as usual: else
    it may be the wait for a processor, of processes that come and go.
    """
    return _rare_time(run, MODULE_PHASES if phase.traits.in_module else (phase,))


def _rare_time(run: Evidence, phases: Sequence[Phase]) -> RareTime | None:
    found = run.series.rare(phases, _explained(run, phases))
    by_machine = found is not None and (not found.has_pattern or found.elsewhere >= SPREAD)
    return None if by_machine and is_crowded(run) else found


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
