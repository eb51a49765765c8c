"""From an interval to a word: above a bound, below it, or near; and the forms in which a rule answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from .._units import format_ms, format_percent
from ..frame import Phase
from ..summary import Finding, Row, Severity
from .evidence import Evidence, Interval
from .thresholds import CRITICAL, CRITICAL_SHARE, MARGIN

NEARLY_ALL: Final = 0.8
"""From this part on a time is said to be in one place."""
Standing = Literal["above", "near", "below"]


def stand(value: Interval, bound: float) -> Standing:
    """Say where a value stands when all of its interval and the margin around the bound are taken seriously."""
    if value.low >= bound * (1 + MARGIN):
        return "above"
    return "below" if value.high <= bound * (1 - MARGIN) else "near"


def abstain(rule: str, missing: str, remedy: str, evidence: Mapping[str, Any] | None = None) -> Finding:
    """Say that a rule cannot judge, which signal it lacks, and what would give it."""
    return Finding(rule, "info", f"not judged: {missing}", remedy, evidence={"missing": missing, **(evidence or {})})


@dataclass(frozen=True, slots=True)
class Weighed:
    """A time that clearly is above its bound: what a finding is made of."""

    rule: str
    mean_ns: float
    share: Interval
    mean_share: float
    bound: float
    phase: Phase | None
    evidence: Mapping[str, Any]

    def finding(
        self,
        why: str,
        next: str,
        *,
        name: str | None = None,
        gain_ns: float | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> Finding:
        """Make the finding; what a perfect cure wins is all of the mean unless ``gain_ns`` says otherwise."""
        grave = self.share.low >= max(CRITICAL * self.bound, CRITICAL_SHARE)
        severity: Severity = "critical" if grave else "warning"
        gain = round(self.mean_ns if gain_ns is None else gain_ns)
        merged = {**self.evidence, **(evidence or {})}
        return Finding(self.rule, severity, why, next, name, self.phase, None, max(gain, 0), merged)


def weigh(
    rule: str, seen: Evidence, ns: Interval, mean_ns: float, bound: float, phase: Phase | None = None
) -> Weighed | Finding | None:
    """Hold a time against its bound, a share of the step: above it ``Weighed``, near it an abstention, else None.

    The interval of the median decides, so that one stall of the machine is no verdict; the mean is what is reported,
    because it is what the tables show and what adds up to the run's length.
    """
    share = ns.over(seen.step)
    facts = {
        "mean_ns": round(mean_ns),
        "p50_ns": round(ns.middle),
        "share": round(share.middle, 4),
        "share_low": round(share.low, 4),
        "share_high": round(share.high, 4),
        "bound": bound,
        "steps": seen.summary.steps,
    }
    standing = stand(share, bound)
    if standing == "above":
        return Weighed(rule, mean_ns, share, mean_ns / seen.summary.step_mean_ns, bound, phase, facts)
    return near(rule, share, bound, facts) if standing == "near" else None


def weigh_rows(rule: str, seen: Evidence, rows: list[Row], bound: float) -> Weighed | Finding | None:
    """Hold the rows' own time, all of one phase, against its bound."""
    mean_ns = sum(row.self_ns for row in rows) / seen.summary.steps
    return weigh(rule, seen, seen.own(rows), mean_ns, bound, rows[0].phase)


def near(rule: str, share: Interval, bound: float, evidence: Mapping[str, Any]) -> Finding:
    """Say that a share is too near to its bound, or too uncertain, for a verdict."""
    spread = f"{format_percent(share.low)} to {format_percent(share.high)}"
    missing = f"inconclusive: {spread} of the step, not clear of the bound of {format_percent(bound)}"
    return abstain(rule, missing, "more recorded steps narrow the interval", evidence)


def spent(weighed: Weighed) -> str:
    """Phrase a time: milliseconds a step, and the part of the step."""
    return f"{format_ms(weighed.mean_ns)} ({format_percent(weighed.mean_share)} of the step)"


def place(rows: Sequence[Row]) -> str | None:
    """Name the row that has nearly all of the time; None where it is spread over several."""
    longest = _longest(rows)
    return longest.name if longest.self_ns >= NEARLY_ALL * sum(row.self_ns for row in rows) else None


def most(seen: Evidence, rows: Sequence[Row]) -> str:
    """Say which row has the most of a time that is spread over several."""
    longest = _longest(rows)
    return "" if place(rows) else f", {format_ms(longest.self_ns / seen.summary.steps)} of it in {longest.name}"


def _longest(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: (row.self_ns, row.name))
