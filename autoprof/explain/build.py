"""From a saved run to its ``Explanation``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .._reports.card import MOST_UNATTRIBUTED
from .._reports.run_facts import bias_text, mean_of_all_ns
from .._storage.runs import Run
from .._units import NS_PER_S
from ..diagnose import Experiment, RunFacts, find_rules
from ..sinks._export import saved_summary
from ..summary import Finding, Summary, format_counts
from .data import ComparedRanks, Confidence, Expectation, ExplainedCause, Explanation, Level, State, Trial, Unmeasured
from .place import find_place

FIRM: Final = 1.5
"""The low end of a share is at least this many times its bound: another run of the program gives the same finding."""
DOUBTFUL: Final = {
    "busy-machine": "other processes kept the processors busy: times are longer for this reason",
    "debug-mode": "a debugging switch is on: all times include its cost",
}
"""Findings that make the others less certain."""
TOO_FEW: Final = "recorded steps"


def explain_run(run: Run) -> Explanation:
    """Return the explanation of a saved run; of a run that was killed, from its records.

    Raises ``OutputError`` where it cannot be read.
    """
    summary, facts = saved_summary(run), RunFacts.of_run_info(run.info)
    found = [one for one in summary.findings if one.severity != "info"]
    doubts = _doubts(summary, found, closed=run.info.get("ended") is not None)
    return Explanation(
        run=str(run.path),
        state=_state(summary, found),
        steps=summary.steps,
        step_ns=round(mean_of_all_ns(summary)),
        clock=summary.clock,
        causes=tuple(_cause(one, summary, run, facts, found) for one in found),
        unmeasured=_unmeasured(summary),
        doubts=tuple(doubts),
        ranks=_ranks(facts),
    )


def _ranks(facts: RunFacts) -> ComparedRanks | None:
    """Return the comparison of the ranks; None where they were not compared."""
    found = facts.ranks
    if found is None or found.missing is not None:
        return None
    return ComparedRanks(len(found.compared), found.steps, found.absent, found.slow)


def _state(summary: Summary, found: list[Finding]) -> State:
    if found:
        return "found"
    if not summary.steps or any(_lacks_steps(one) for one in summary.findings):
        judged = [one for one in summary.findings if not _lacks_steps(one)]
        if not summary.steps or not judged:
            return "too few steps"
    return "unclear" if summary.unattributed_share >= MOST_UNATTRIBUTED else "healthy"


def _lacks_steps(finding: Finding) -> bool:
    return str(finding.evidence.get("missing", "")).startswith(TOO_FEW)


def _cause(one: Finding, summary: Summary, run: Run, facts: RunFacts, found: list[Finding]) -> ExplainedCause:
    rule = find_rules().get(one.rule)
    change = Experiment("other", "edit", target=one.name) if rule is None else rule.experiment_for(one)
    place = find_place(one, summary, run, facts)
    if change.change == "module.code" and place.module is not None:
        change = replace(change, target=place.module)
    return ExplainedCause(
        rule=one.rule,
        severity=one.severity,
        cause=one.why,
        place=place,
        gain_ns=one.gain_ns,
        confidence=_confidence(one, summary, found),
        experiment=Trial(change, one.next, _expect(change, one, summary)),
    )


def _confidence(one: Finding, summary: Summary, found: list[Finding]) -> Confidence:
    share, low, high, bound = (_number(one, key) for key in ("share", "share_low", "share_high", "bound"))
    bound = None if "times" in one.evidence else bound  # then it is a ratio's, not the share's
    doubtful = any(other.rule in DOUBTFUL for other in found if other is not one) or bias_text(summary) is not None
    level: Level = "medium"
    if one.rule in DOUBTFUL:
        level = "high"
    elif doubtful:
        level = "low"
    elif low is not None and bound is not None and low >= FIRM * bound:
        level = "high"
    return Confidence(level, share, low, high, bound)


def _number(finding: Finding, key: str) -> float | None:
    value = finding.evidence.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _expect(change: Experiment, one: Finding, summary: Summary) -> Expectation:
    """Return the quantity that falls, as it is now and, where the gain is known, at best."""
    step_ns, gain_ns = mean_of_all_ns(summary), one.gain_ns
    if change.quantity in ("peak_bytes", "held_bytes"):
        key = "peak_bytes" if "peak_bytes" in summary.memory else "rss_peak_bytes"
        now = summary.memory.get(key) if change.quantity == "peak_bytes" else one.evidence.get("last_bytes")
        return Expectation(change.quantity, now, None)
    if change.quantity == "sample_ns":
        rate = summary.throughput
        each = None if not rate else round(NS_PER_S / rate)
        return Expectation(change.quantity, each, None)
    if change.quantity == "wall_ns":
        steps = summary.steps + summary.warmup_steps + summary.unsampled_steps
        step_ns += sum(part.total_ns for part in summary.excluded) / max(steps, 1)
    best = None if gain_ns is None else round(max(step_ns - gain_ns, 0))
    return Expectation(change.quantity, round(step_ns), best)


def _unmeasured(summary: Summary) -> tuple[Unmeasured, ...]:
    """Group the abstentions by the signal that they lack; then the columns of memory that are empty."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in summary.findings:
        if one.severity == "info":
            missing = str(one.evidence.get("missing", one.why))
            groups.setdefault((missing, one.next), []).append(one.rule)
    found = [Unmeasured(missing, tuple(rules), remedy) for (missing, remedy), rules in groups.items()]
    reasons: dict[str, list[str]] = {}
    for column, reason in summary.unmeasured.items():
        reasons.setdefault(reason, []).append(column.removesuffix("_bytes"))
    columns = [Unmeasured(f"memory: {', '.join(names)}", (), reason) for reason, names in reasons.items()]
    return (*found, *columns)


def _doubts(summary: Summary, found: list[Finding], *, closed: bool) -> list[str]:
    """Return the reasons for which the causes are less certain, and the losses of records."""
    doubts = [DOUBTFUL[one.rule] for one in found if one.rule in DOUBTFUL]
    if not closed:
        doubts.append("the run was not closed: these figures are from its records so far")
    if (bias := bias_text(summary)) is not None:
        doubts.append(bias)
    doubts += [f"{word}: {format_counts(counts)}" for word, counts in _losses(summary) if counts]
    return doubts


def _losses(summary: Summary) -> list[tuple[str, dict[str, int]]]:
    return [("dropped", dict(summary.dropped)), ("skipped", dict(summary.skipped))]
