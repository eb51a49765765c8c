"""The card: Verdict, Why, Next; then the other findings, the table of scenarios, and the rules that were not judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from ..base.frame import Phase
from ..base.summary import Finding, Summary, WhatIf
from ..base.units import count, format_bytes, format_ms, format_rate, format_span
from .ledger_text import consists_of, describe_unexplained, how_to_clarify, is_explained, where_to_begin
from .text import crop, fit, safe, wrap

HEALTHY: Final = "nothing stands out"


def verdict(summary: Summary) -> Finding | None:
    """Return the first finding; None where no rule found a problem or no rule was judged."""
    first = summary.findings[0] if summary.findings else None
    return None if first is None or first.severity == "info" else first


def run_state(summary: Summary) -> Literal["found", "healthy", "unclear", "too few steps"]:
    """Return the verdict on the run as one of four words."""
    if verdict(summary) is not None:
        return "found"
    if not summary.steps or (summary.findings and all(map(_lacks_steps, summary.findings))):
        return "too few steps"
    return "healthy" if is_explained(summary) else "unclear"


def verdict_line(summary: Summary, *, gain: bool = True) -> str | None:
    """Phrase the verdict in one line, with its possible gain if ``gain``; None while there are too few steps."""
    if not summary.findings:
        return None
    found = verdict(summary)
    if found is None:
        state = run_state(summary)
        return {"healthy": HEALTHY, "unclear": _unclear(summary)}.get(state)
    return _title(found) if gain else _where(found)


def render_card(summary: Summary, *, width: int = 80) -> list[str]:
    """Return the card as plain text, no line wider than ``width`` cells; no lines where there is no finding."""
    lines = render_findings(summary, width=width)
    lines += [line for block in render_outlook(summary, width=width) for line in ["", *block]]
    return [crop(safe(line), width).rstrip() for line in lines]


def render_findings(summary: Summary, *, width: int) -> list[str]:
    """Return the verdict and the other findings, each with its reason and the next step."""
    lines = [line for label, text in card_facts(summary) for line in wrap(label, text, width)]
    for finding in [one for one in summary.findings if one.severity != "info"][1:]:
        lines += ["", *wrap("also", f"[{finding.severity}] {_title(finding)}", width)]
        lines += [*wrap("  why", finding.why, width), *wrap("  next", finding.next, width)]
    return lines


def render_outlook(summary: Summary, *, width: int) -> list[list[str]]:
    """Return the table of scenarios and the sentence of the rules that were not judged, as blocks of lines."""
    blocks = [list(_table(summary, width))] if summary.what_if and summary.findings else []
    if any(finding.severity == "info" and not _lacks_steps(finding) for finding in summary.findings):
        blocks.append(list(_unjudged(summary, width)))
    return blocks


def card_facts(summary: Summary) -> list[tuple[str, str]]:
    """Return the card of the first finding as labels and texts, then the conditions; nothing if no rule was judged."""
    return [*_facts(summary), *(("Measured", one) for one in summary.conditions)]


def _facts(summary: Summary) -> list[tuple[str, str]]:
    if not summary.findings:
        return []
    found = verdict(summary)
    if found is not None:
        # A note is no defect: a reader then looks for the parts of a step.
        why = f"{found.why}. Beside it, {consists_of(summary)}" if found.severity == "note" else found.why
        return [("Verdict", f"[{found.severity}] {_title(found)}"), ("Why", why), ("Next", found.next)]
    state = run_state(summary)
    if state == "unclear":
        remedy = how_to_clarify(summary)
        why = "no rule found anything in the rest of it"
        for doubt in (one for one in summary.findings if one.rule == "unattributed"):
            why, remedy = f"time in no span: {doubt.why}; {why}", f"{remedy}; {doubt.next}"
        return [("Verdict", _unclear(summary)), ("Why", why), ("Next", remedy)]
    if state == "too few steps":
        return [("Verdict", f"not judged: {summary.findings[0].evidence.get('missing', 'no recorded step')}")]
    return [
        ("Verdict", HEALTHY),
        ("Why", f"{consists_of(summary)}. No rule found anything in {count(summary.steps, 'recorded step')}"),
        ("Next", where_to_begin(summary)),
    ]


def other_findings(summary: Summary) -> list[str]:
    """Phrase each finding after the first in one line."""
    found = [finding for finding in summary.findings if finding.severity != "info"]
    return [f"[{finding.severity}] {_title(finding)}" for finding in found[1:]]


def _title(finding: Finding) -> str:
    gain = f" (up to {format_ms(finding.gain_ns)} a step could be saved)" if finding.gain_ns else ""
    return _where(finding) + gain


def _where(finding: Finding) -> str:
    where = "" if finding.name is None or finding.name.lower() == finding.rule else finding.name
    phase = "" if finding.phase in (None, Phase.OTHER) else str(finding.phase)
    if phase and phase != finding.rule and phase not in where.lower():  # not `(backward) backward`, `Comm/DDP comm`
        where = f"{where} {phase}".strip()
    rank = "" if finding.rank is None else f" on rank {finding.rank}"
    return f"{finding.rule}{': ' + where if where else ''}{rank}"


def _lacks_steps(finding: Finding) -> bool:
    return str(finding.evidence.get("missing", "")).startswith("recorded steps")


def _unclear(summary: Summary) -> str:
    return f"unclear: {describe_unexplained(summary)}"


def _unjudged(summary: Summary, width: int) -> Iterator[str]:
    """Yield the rules that were not judged as one sentence, by the signal that each of them lacks."""
    rules: dict[str, list[str]] = {}
    for finding in summary.findings:
        if finding.severity == "info" and not _lacks_steps(finding):
            rules.setdefault(str(finding.evidence.get("missing", finding.why)), []).append(finding.rule)
    texts = []
    for missing, names in rules.items():
        word = missing if missing.startswith("inconclusive") else f"missing: {missing}"
        texts.append(f"{', '.join(names)} ({word})")
    yield from wrap("not judged", "; ".join(texts), width, room=12)


def _table(summary: Summary, width: int) -> Iterator[str]:
    change_cells = 17
    now = _unchanged(summary)
    has_end = now.remaining_ns is not None
    yield fit("what if", change_cells) + (
        f"{'step':>11}{'throughput':>16}{'memory':>12}{'':>6}{'to finish' if has_end else 'time':>13}"
    )
    for one in (now, *summary.what_if):
        rate = "-" if one.throughput is None else format_rate(one.throughput, summary.throughput_unit)
        memory = "-" if one.memory_bytes is None else format_bytes(one.memory_bytes)
        share = "" if one.memory_share is None else f"{100 * one.memory_share:.0f} %"
        last = format_span(one.remaining_ns or 0) if has_end else f"x {one.time_ratio or 1:.2f}"
        yield fit(one.change, change_cells) + f"{format_ms(one.step_ns):>11}{rate:>16}{memory:>12}{share:>6}{last:>13}"
    counted = "resident set" if "peak_bytes" not in summary.memory else "peak"
    memory = f"memory: the {counted}" + (" and its share of all memory" if summary.memory else "")
    unknown = "time: for the same samples; time to finish: unknown (a framework's callback or session.log tells it)"
    yield from wrap("", memory if has_end else f"{memory}; {unknown}", width, room=2)
    for one in summary.what_if:
        yield from wrap(f"  {one.change}", f"assumed: {one.assumed}{_saves(one)}", width, room=change_cells + 2)


def _unchanged(summary: Summary) -> WhatIf:
    peak = summary.memory.get("peak_bytes", summary.memory.get("rss_peak_bytes"))
    capacity = memory_capacity(summary)
    return WhatIf(
        change="unchanged",
        step_ns=summary.step_mean_ns,
        throughput=summary.throughput,
        memory_bytes=peak,
        memory_change_bytes=None,
        assumed="",
        memory_share=None if peak is None or capacity is None else peak / capacity,
        remaining_ns=None if summary.progress is None else summary.progress.remaining_ns,
    )


def memory_capacity(summary: Summary) -> int | None:
    """Return the device's memory in bytes, None where no scenario names its share."""
    known = (one.memory_bytes / one.memory_share for one in summary.what_if if one.memory_bytes and one.memory_share)
    return next(map(round, known), None)


def _saves(one: WhatIf) -> str:
    change = one.memory_change_bytes
    if not change:
        return ""
    return f"; {format_bytes(abs(change))} {'more' if change > 0 else 'less'}"
