"""From a saved run to its ``Explanation``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...base.storage.runs import Run
from ...base.summary import Finding, State, Summary, format_counts
from ...base.units import NS_PER_S
from ...diagnose import Experiment, RunFacts, StackTable, find_rules, saved_summary
from ..card import run_state
from ..run_facts import bias_text
from .data import (
    CodePlace,
    Confidence,
    Expectation,
    ExplainedCause,
    Explanation,
    Trial,
    Unmeasured,
)

DOUBTFUL: Final = {
    "debug-mode": "a debugging switch is on: all times include its cost",
}
"""Findings that make the others less certain."""


def explain_run(run: Run) -> Explanation:
    """Return the explanation of a saved run; of a run that was killed, from its records.

    Raises ``OutputError`` where it cannot be read.
    """
    summary, facts = saved_summary(run), RunFacts.of_run_info(run.info)
    found = [one for one in summary.findings if one.severity != "info"]
    return Explanation(
        run=str(run.path),
        state=run_state(summary),
        steps=summary.steps,
        step_ns=round(summary.run_mean_ns),
        clock=summary.clock,
        ledger=_by_state(summary),
        causes=tuple(_cause(one, summary, run, facts, found) for one in found),
        unmeasured=tuple(_unmeasured(summary)),
        doubts=tuple(_doubts(summary, found, closed=run.info["ended"] is not None)),
    )


def _by_state(summary: Summary) -> dict[State, int]:
    found: dict[State, int] = {}
    for one in summary.ledger:
        found[one.state] = found.get(one.state, 0) + one.ns
    return found


def _cause(one: Finding, summary: Summary, run: Run, facts: RunFacts, found: list[Finding]) -> ExplainedCause:
    rule = find_rules().get(one.rule)
    change = Experiment("other", "edit", target=one.name) if rule is None else rule.experiment_for(one)
    place = _place(one, summary, run, facts)
    target = place.module if change.change == "module.code" and place.module is not None else change.target
    expect = _expect(change, one, summary)
    trial = Trial(change.change, change.operation, change.value, target, one.next, expect)
    confidence = _confidence(one, summary, found)
    return ExplainedCause(one.rule, one.severity, one.why, place, one.gain_ns, confidence, trial)


def _place(one: Finding, summary: Summary, run: Run, facts: RunFacts) -> CodePlace:
    """Return the place of a finding: the module's code, else the line with the most time."""
    place = CodePlace(None if one.phase is None else str(one.phase), one.name, rank=one.rank)
    row = next((row for row in summary.rows if row.name == one.name and row.fqn), None)
    fqn = one.evidence.get("module") or (one.name if row is None else row.fqn)
    source = (run.info.get("sources") or {}).get(fqn)
    if source is not None:
        file, line = source["file"], source["line"]
        return replace(place, module=fqn, class_name=source["class"], file=file, line=line, function="forward")
    if row is not None:
        place = replace(place, module=fqn)
    for key in ("sites", "lines", "functions"):
        for site in one.evidence.get(key) or ():
            file, _, number = str(site.get("where", "")).rpartition(":")
            if not file or not number.isdigit():
                return place
            known = (path for path, line in _lines(facts) if line == int(number) and path.endswith(file))
            function, call = site.get("function"), site.get("call")
            return replace(place, file=next(known, file), line=int(number), function=function, call=call)
    start = f"{one.phase} {one.name or ''}".rstrip()
    tables = [table for kind, table in facts.stacks.items() if kind.startswith(start) and table.named]
    if one.phase is None or not tables:
        return place
    longest = max(tables, key=lambda table: table.ns).named[0]
    call = longest.call or None
    return replace(place, file=longest.file, line=longest.line, function=longest.function, call=call)


def _lines(facts: RunFacts) -> Iterator[tuple[str, int]]:
    """Yield all lines that the run knows with their full paths: the evidence has them as the reports show them."""
    for table in (facts.waits, facts.logs, *facts.stacks.values()):
        if table is not None:
            sites = table.lines if isinstance(table, StackTable) else table.sites
            yield from ((site.file, site.line) for site in sites)
    yield from ((one.line.file, one.line.line) for one in facts.threads if one.line is not None)
    for function in facts.compiled.functions if facts.compiled is not None else ():
        yield function.file, function.line


def _confidence(one: Finding, summary: Summary, found: list[Finding]) -> Confidence:
    share, low, high, bound = (_number(one, key) for key in ("share", "share_low", "share_high", "bound"))
    others = any(other.rule in DOUBTFUL for other in found if other is not one)
    doubtful = others or bool(summary.conditions) or bias_text(summary) is not None
    # The low end of a share is so many times its bound that another run of the program gives the same finding.
    firm = low is not None and bound is not None and low >= 1.5 * bound
    if one.rule in DOUBTFUL:
        return Confidence("high", share, low, high, bound)
    return Confidence("low" if doubtful else "high" if firm else "medium", share, low, high, bound)


def _number(finding: Finding, key: str) -> float | None:
    value = finding.evidence.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _expect(change: Experiment, one: Finding, summary: Summary) -> Expectation:
    """Return the quantity that falls, as it is now and, where the gain is known, at best."""
    if change.quantity == "peak_bytes":
        key = "peak_bytes" if "peak_bytes" in summary.memory else "rss_peak_bytes"
        return Expectation(change.quantity, summary.memory.get(key), None)
    if change.quantity == "held_bytes":
        return Expectation(change.quantity, one.evidence.get("last_bytes"), None)
    if change.quantity == "sample_ns":
        rate = summary.throughput
        return Expectation(change.quantity, round(NS_PER_S / rate) if rate else None, None)
    step_ns = summary.run_mean_ns
    gain_ns = one.gain_ns
    if gain_ns is not None and change.quantity == "step_ns":
        # It is a part of the recorded steps; the same part of the mean of all steps can be gained.
        gain_ns = round(gain_ns * step_ns / max(summary.step_mean_ns, 1))
    if change.quantity == "wall_ns":
        steps = summary.steps + summary.warmup_steps + summary.unsampled_steps
        step_ns += sum(part.total_ns for part in summary.stages) / max(steps, 1)
    best = None if gain_ns is None else round(max(step_ns - gain_ns, 0))
    return Expectation(change.quantity, round(step_ns), best)


def _unmeasured(summary: Summary) -> Iterator[Unmeasured]:
    """Yield the abstentions by the signal that they lack; then the columns of memory that are empty."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in summary.findings:
        if one.severity == "info":
            missing = str(one.evidence.get("missing", one.why))
            groups.setdefault((missing, one.next), []).append(one.rule)
    yield from (Unmeasured(missing, tuple(rules), remedy) for (missing, remedy), rules in groups.items())
    for column, reason in summary.unmeasured.items():
        yield Unmeasured(f"memory: {column.removesuffix('_bytes')}", (), reason)


def _doubts(summary: Summary, found: list[Finding], *, closed: bool) -> Iterator[str]:
    """Yield the reasons for which the causes are less certain, and the losses of records."""
    yield from (DOUBTFUL[one.rule] for one in found if one.rule in DOUBTFUL)
    yield from (f"measured {one}" for one in summary.conditions)
    if not closed:
        yield "the run was not closed: these figures are from its records so far"
    if (bias := bias_text(summary)) is not None:
        yield bias
    for word, counts in (("dropped", summary.dropped), ("skipped", summary.skipped)):
        if counts:
            yield f"{word}: {format_counts(counts)}"
