"""The short report: the card, the tree of the hot path and the phases in at most 39 lines of 80 cells."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from ..base.frame import Phase
from ..base.summary import Summary
from ..base.units import count, format_percent, format_short
from .card import card_facts, other_findings
from .hot_tree import hot_tree
from .run_facts import FULL, NOTHING, PAGE, Fact, headline, run_facts, shown_path
from .stage_text import MOST, stage_lines
from .text import crop, render_rows, safe, wrap
from .tree_text import column_unit, name_cells, render_tree

LINES: Final = 39
"""The most lines; the console puts an empty line before them."""
HEAD_LINES: Final = 24
"""The most lines of the texts above the tree, less those of the stages: it has room for the rows with most time."""
LABEL: Final = 11
"""Cells of the labels at the left edge."""


def render_short(summary: Summary, *, width: int = 80, folder: Path | None = None) -> list[str]:
    """Return the report for a tired person: cause, reason and next step first; no line but the last is wider."""
    width = max(width, 80)
    end = phase_lines(summary, width) if summary.steps else []
    stages = stage_lines(summary, width, MOST) if summary.steps else []
    if stages:
        end = [*stages, "", *end]
    head = ["─" * width, *_head(summary, width, HEAD_LINES - len(stages) - bool(stages))]
    last: list[str] = []
    if folder is not None:  # whole however long it is, for copying
        last = ["", f"all figures: {FULL}; a page: {PAGE}; the run's folder:", safe(shown_path(folder))]
    room = LINES - len(head) - len(end) - len(last) - 6  # the head and the last lines of the tree, blank lines
    tree = []
    if summary.steps:
        rows = hot_tree(summary, min(max(room, 3), 14), name_cells(summary, width))
        tree = render_tree(rows, summary, width)
    blocks = [block for block in (head, tree, end) if block]
    lines = [line for at, block in enumerate(blocks) for line in (["", *block] if at else block)]
    return [*(crop(safe(line), width).rstrip() for line in lines), *last]


def render_html(summary: Summary) -> str:
    """Return the report as HTML for a notebook: its text in the notebook's own colours, every character escaped."""
    text = "\n".join(render_short(summary, width=96))
    return f'<div class="autoprof"><pre style="line-height: 1.2">{escape(text)}</pre></div>'


def _head(summary: Summary, width: int, most: int) -> Iterator[str]:
    """Yield the card, the other findings, the facts of the run and its notes, in about ``most`` lines."""
    yield from wrap("", headline(summary), width, 0)
    if not summary.steps:
        yield from wrap("", NOTHING, width, 0)
    also = [("also", text) for text in other_findings(summary)]
    notes = [("note", note) for note in summary.notes]
    texts = [*card_facts(summary), *_first(also, 3, "finding"), *run_facts(summary), *_first(notes, 4, "note")]
    blocks = [wrap(label, text, width, LABEL) for label, text in texts]
    while sum(map(len, blocks)) > most and len(longest := max(blocks, key=len)) > 1:
        longest.pop()  # the longest text loses its end first
        longest[-1] = f"{crop(longest[-1], width - 2).rstrip()} …"
    yield from (line for block in blocks for line in block)


def _first(texts: list[Fact], most: int, word: str) -> list[Fact]:
    """Return the first texts, and the number of the others."""
    rest = len(texts) - most
    return [*texts[:most], *([("", f"and {count(rest, f'more {word}')}: {FULL}")] if rest > 0 else [])]


def phase_lines(summary: Summary, width: int) -> list[str]:
    """Return the time and the share of each phase as columns, at most eight in a table: these fit into 80 cells."""
    unit_ns, unit = column_unit(summary)
    whole = max(summary.total_step_ns, 1)
    limit = summary.clock_limit_ns * summary.steps / whole
    shown = [(str(phase), ns) for phase, ns in summary.phases.items() if ns or phase is Phase.OTHER]
    shown.append(("step", summary.total_step_ns))
    times = [format_short(ns / summary.steps, summary.clock_limit_ns, unit_ns, none="0") for _, ns in shown]
    shares = [format_percent(ns / whole, limit) for _, ns in shown]
    columns = list(zip([word for word, _ in shown], times, shares, strict=True))
    heads = "phase", f"{unit}/step", "share"
    tables = (zip(heads, *columns[at : at + 8], strict=True) for at in range(0, len(columns), 8))
    return [line for table in tables for line in render_rows([*table], width)]
