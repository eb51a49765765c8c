"""The short report as HTML for notebooks: no script, no colour of its own for text, so that it suits light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from .._units import format_percent
from ..frame import Phase
from ..summary import Summary
from .card import card_facts, other_findings
from .figures import phase_color
from .hot_tree import hot_tree
from .run_facts import FULL, NOTHING, PAGE, headline, run_facts, shown_path
from .text import safe
from .tree_text import clock_legend, tree_table

TREE: Final = 24
"""Names of the tree."""
SEVERITIES: Final = {"critical": "#d55e00", "warning": "#cc8800"}
"""Colours that are legible on white and on black."""
_STYLE: Final = """
.autoprof {font-size: 13px; line-height: 1.4; max-width: 60em}
.autoprof table {font-size: inherit; border-collapse: collapse; margin: .6em 0}
.autoprof th, .autoprof td {padding: 1px 10px; text-align: right; background: none; border: none; color: inherit;
  font-variant-numeric: tabular-nums; vertical-align: top}
.autoprof tr:nth-child(n) {background: none !important}
.autoprof th {border-bottom: 1px solid rgba(128, 128, 128, .6); font-weight: 600}
.autoprof th:first-child, .autoprof td:first-child {text-align: left !important; padding-left: 0; white-space: pre}
.autoprof .facts td {text-align: left !important; white-space: normal}
.autoprof .facts td:first-child {opacity: .7; white-space: nowrap}
.autoprof .bar {display: inline-block; height: .7em; background: #4c8fc8; margin-left: 6px}
.autoprof td.bars {width: 90px; text-align: left !important; padding-left: 0}
.autoprof .phases {display: flex; height: 14px; margin: .6em 0 .2em}
"""


def render_html(summary: Summary, folder: Path | None = None) -> str:
    """Return the report as an element ``div`` with its own style; every text of the run is escaped."""
    parts = [f"<style>{_STYLE}</style>", f"<b>{_text(headline(summary))}</b>"]
    if not summary.steps:
        parts.append(f"<p>{_text(NOTHING)}</p>")
    parts.append(_facts(_card(summary)))
    if summary.steps:
        parts += [_tree(summary), _phases(summary)]
    facts = [(label, _text(text)) for label, text in run_facts(summary)]
    parts.append(_facts([*facts, *(("note", _text(note)) for note in summary.notes)]))
    if folder is not None:
        shown = f"<code>{_text(shown_path(folder))}</code>"
        parts.append(f"<div>all figures: {FULL}; a page: {PAGE}; the run's folder: {shown}</div>")
    return f'<div class="autoprof">{"".join(parts)}</div>'


def _text(text: str) -> str:
    return escape(safe(text))


def _card(summary: Summary) -> Iterable[tuple[str, str]]:
    for label, text in card_facts(summary):
        severity = summary.findings[0].severity
        if label == "Verdict" and severity in SEVERITIES:
            yield label, f'<b style="color: {SEVERITIES[severity]}">{_text(text)}</b>'
        else:
            yield label, f"<b>{_text(text)}</b>" if label == "Verdict" else _text(text)
    for text in other_findings(summary):
        yield "also", _text(text)


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><td>{_text(label)}</td><td>{text}</td></tr>" for label, text in facts)
    return f'<table class="facts">{rows}</table>' if rows else ""


def _tree(summary: Summary) -> str:
    tree = hot_tree(summary, TREE)
    table = tree_table(tree, summary)
    name, share, *others = (f"<th>{_text(head)}</th>" for head in table.heads)
    lines = [f"<tr>{name}{share}<th></th>{''.join(others)}</tr>"]
    for row, shown, (part, *numbers) in zip(tree.rows, table.names, table.numbers, strict=True):
        bar = f'<td class="bars"><span class="bar" style="width: {_percent(row.share)}"></span></td>'
        cells = "".join(f"<td>{_text(number)}</td>" for number in numbers)
        lines.append(f"<tr><td>{_text(shown)}</td><td>{_text(part)}</td>{bar}{cells}</tr>")
    below = [*table.below, *clock_legend(tree, summary)]
    return f"<table>{''.join(lines)}</table>{''.join(f'<div>{_text(line)}</div>' for line in below)}"


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.1f}%"


def _phases(summary: Summary) -> str:
    whole = max(summary.total_step_ns, 1)
    limit = summary.clock_limit_ns * summary.steps / whole
    shown = [(phase, ns / whole) for phase, ns in summary.phases.items() if ns or phase is Phase.OTHER]
    blocks = "".join(
        f'<span style="width: {_percent(share)}; background: {escape(phase_color(phase))}"></span>'
        for phase, share in shown
    )
    words = " · ".join(
        f'<span style="white-space: nowrap"><span style="color: {escape(phase_color(phase))}">■</span> '
        f"{_text(str(phase))} {_text(format_percent(share, limit))}</span>"
        for phase, share in shown
    )
    return f'<div class="phases">{blocks}</div><div>{words}</div>'
