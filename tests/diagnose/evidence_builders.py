"""Evidence made by hand, so that every number a rule sees is known."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from autoprof.base.frame import Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import Summary
from autoprof.diagnose import Evidence, EvidenceCollector, RunFacts
from autoprof.testing import make_frame

MS = 1_000_000


def spans_of(**milliseconds: float) -> list[Span]:
    """Make one span after the other: ``data=40`` is 40 ms of data."""
    spans, at = [], 0
    for word, ms in milliseconds.items():
        ns = round(ms * MS)
        fqn = "block" if word in ("forward", "backward", "recompute") else None
        spans.append(Span(fqn or word, fqn, Phase(word), None, at, ns))
        at += ns
    return spans


def evidence_of(
    *steps: dict[str, float],
    repeat: int = 1,
    step_ms: float = 100,
    facts: RunFacts | None = None,
    numbers: Iterable[int] | None = None,
    **changes: Any,
) -> Evidence:
    """Make the evidence of these steps, the list of them ``repeat`` times; ``changes`` are to the summary."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number, parts in zip(count(1) if numbers is None else numbers, steps * repeat, strict=False):
        length = round(parts.get("step", step_ms) * MS)
        spans = spans_of(**{word: ms for word, ms in parts.items() if word != "step"})
        frame = make_frame(spans, step=number, duration_ns=length)
        aggregate.add(frame)
        collector.add(frame)
    return collector.evidence(replace(aggregate.summary(), **changes), facts or RunFacts())


def found(summary: Summary) -> list[str]:
    """Return the rules that found something, in their order."""
    return [finding.rule for finding in summary.findings if finding.severity != "info"]


def finding_of(summary: Summary, rule: str) -> Any:
    """Return a rule's finding or abstention; None without one."""
    return next((finding for finding in summary.findings if finding.rule == rule), None)
