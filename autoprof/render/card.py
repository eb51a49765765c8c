"""The card: Verdict, Why, Next; then the other findings, the what-if table, and what could not be judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..summary import Finding, Summary, WhatIf
from ..units import format_bytes, format_ms, format_rate
from .text import cells, crop, fit, safe

LABEL: Final = 10
"""Cells of the words at the left edge."""
CHANGE: Final = 18
HEALTHY: Final = "nothing stands out"


def verdict(summary: Summary) -> Finding | None:
    """Return the finding that stands first; None where nothing stands out or nothing was judged."""
    first = summary.findings[0] if summary.findings else None
    return None if first is None or first.severity == "info" else first


def verdict_line(summary: Summary, *, gain: bool = True) -> str | None:
    """Phrase the verdict in one line, with what it would win if ``gain``; None while it is too early to say."""
    if not summary.findings:
        return None
    found = verdict(summary)
    if found is None:
        said = _quiet(summary)
        return said if said == HEALTHY else None
    return _title(found) if gain else _where(found)


def render_card(summary: Summary, *, width: int = 80) -> list[str]:
    """Return the card in plain text, no line wider than ``width`` cells; no line where no rule has spoken."""
    if not summary.findings:
        return []
    found = [finding for finding in summary.findings if finding.severity != "info"]
    lines = list(_head(found[0], width) if found else _healthy(summary, width))
    for finding in found[1:]:
        lines += ["", *wrap("also", f"[{finding.severity}] {_title(finding)}", width)]
        lines += [*wrap("  why", finding.why, width), *wrap("  next", finding.next, width)]
    if summary.what_if:
        lines += ["", *_table(summary, width)]
    if any(not _waits(finding) for finding in summary.findings if finding.severity == "info"):
        lines += ["", *_unjudged(summary, width)]
    return [crop(safe(line), width).rstrip() for line in lines]


def _head(finding: Finding, width: int) -> Iterator[str]:
    yield from wrap("Verdict", f"[{finding.severity}] {_title(finding)}", width)
    yield from wrap("Why", finding.why, width)
    yield from wrap("Next", finding.next, width)


def _title(finding: Finding) -> str:
    gain = f" (up to {format_ms(finding.gain_ns)} a step to be won)" if finding.gain_ns else ""
    return _where(finding) + gain


def _where(finding: Finding) -> str:
    where = "" if finding.name is None else " ".join(str(part) for part in (finding.name, finding.phase) if part)
    rank = "" if finding.rank is None else f" on rank {finding.rank}"
    return f"{finding.rule}{': ' + where if where else ''}{rank}"


def _waits(finding: Finding) -> bool:
    return str(finding.evidence.get("missing", "")).startswith("recorded steps")


def _quiet(summary: Summary) -> str:
    waiting = [finding for finding in summary.findings if _waits(finding)]
    if len(waiting) == len(summary.findings) and waiting:
        return f"too early to say ({waiting[0].evidence['missing']})"
    return HEALTHY


def _healthy(summary: Summary, width: int) -> Iterator[str]:
    said = _quiet(summary)
    yield from wrap("Verdict", said, width)
    if said == HEALTHY:
        yield from wrap("Why", f"no rule found anything in {summary.steps} steps", width)
        yield from wrap("Next", "nothing to do; what was not judged stands below, with what it would take", width)


def _unjudged(summary: Summary, width: int) -> Iterator[str]:
    yield "not judged"
    for finding in summary.findings:
        if finding.severity == "info":
            missing = str(finding.evidence.get("missing", finding.why))
            word = missing if missing.startswith("inconclusive") else f"missing {missing}"
            yield from wrap(f"  {finding.rule}", word, width, room=CHANGE)


def _table(summary: Summary, width: int) -> Iterator[str]:
    yield fit("what if", CHANGE) + f"{'step':>14}{'throughput':>18}{'memory':>14}{'change':>14}"
    now = WhatIf("as it is", summary.step_mean_ns, summary.throughput, _peak(summary), None, "")
    for one in (now, *summary.what_if):
        rate = "-" if one.throughput is None else format_rate(one.throughput, summary.throughput_unit)
        memory = "-" if one.memory_bytes is None else format_bytes(one.memory_bytes)
        change = "-" if one.memory_change_bytes is None else f"{one.memory_change_bytes / 2**20:+.1f} MiB"
        yield fit(one.change, CHANGE) + f"{format_ms(one.step_ns):>14}{rate:>18}{memory:>14}{change:>14}"
        if one.assumed:
            yield from wrap("  assumed", one.assumed, width, room=LABEL + 2)


def _peak(summary: Summary) -> int | None:
    return summary.memory.get("peak_bytes", summary.memory.get("rss_peak_bytes"))


def wrap(label: str, text: str, width: int, room: int = LABEL) -> list[str]:
    """Return a text behind its label, broken between words; a word wider than its room is cropped by the caller."""
    lines: list[str] = []
    line = ""
    for word in safe(text).split():
        if line and cells(line) + 1 + cells(word) > width - room:
            lines.append(line)
            line = ""
        line += f" {word}" if line else word
    return [fit(label if at == 0 else "", room) + part for at, part in enumerate([*lines, line])]
