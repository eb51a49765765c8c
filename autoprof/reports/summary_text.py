"""The full report of a run: ``summary.txt`` and ``autoprof show --full``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..base.frame import TRAINING_LANE
from ..base.summary import Summary
from ..base.units import format_ms
from .card import render_findings, render_outlook
from .hot_tree import hot_tree, separate_tree
from .measurements import communication_table, work_table
from .memory_text import render_memory
from .run_facts import NOTHING, headline, run_facts
from .short_text import LABEL, phase_lines
from .stage_text import stage_lines
from .text import crop, render_rows, safe, wrap
from .tree_text import name_cells, render_tree

NARROWEST: Final = 80


_ADDS_UP: Final = (
    "Means per recorded step; percentages are of the step. The phases add up to the",
    "step exactly, and so do the names at the left edge together with other. A name",
    "includes the names indented below it. The column backward excludes recompute;",
    "under longest, backward includes the recompute in it.",
)


def render_summary(summary: Summary, *, width: int = NARROWEST, top: int = 24) -> list[str]:
    """Return the full report, no line wider than ``width`` cells (at least 80)."""
    width = max(width, NARROWEST)
    blocks = [[*wrap("", headline(summary, full=True), width, 0), *render_findings(summary, width=width)]]
    if summary.steps:
        blocks += [[*_names(summary, width, top)], stage_lines(summary, width), phase_lines(summary, width)]
    else:
        blocks[0] += wrap("", NOTHING, width, 0)
    facts = [*run_facts(summary, full=True), *(("note", note) for note in summary.notes)]
    blocks.append([line for label, text in facts for line in wrap(label, text, width, LABEL)])
    if summary.steps:
        blocks += [_spread(summary, width), [*_ADDS_UP]]
        blocks += [communication_table(summary, width), work_table(summary.work, width)]
    blocks.append(render_memory(summary, width=width))
    blocks += render_outlook(summary, width=width)
    text = [line for at, block in enumerate(filter(None, blocks)) for line in (["", *block] if at else block)]
    lines = ["─" * width, *text, "─" * width]
    return [crop(safe(line), width).rstrip() for line in lines]


def _names(summary: Summary, width: int, top: int) -> Iterator[str]:
    room = name_cells(summary, width, calls=True)
    tree, separate = hot_tree(summary, top, room), separate_tree(summary, top, room)
    yield from render_tree(tree, summary, width, calls=True)
    if not any(row.steps for row in tree.rows):
        yield "no span was recorded: the whole step is other"
    if separate.rows:
        yield ""
        yield "not part of the step's time (other threads, logged durations)"
        yield from render_tree(separate, summary, width, calls=True)[1:]


def _spread(summary: Summary, width: int) -> list[str]:
    rows = [row for row in summary.rows if row.lane == TRAINING_LANE][:8]
    if not rows:
        return []
    lines = [["longest", "mean", "p50", "p95", "max"]]
    for row in rows:
        name = row.name if row.phase.value == row.name else f"{row.name} {row.phase}"
        limit_ns = row.calls / row.steps * summary.clock_limit_ns
        times = (row.mean_ns, row.p50_ns, row.p95_ns, row.max_ns)
        lines.append([name, *(format_ms(ns, limit_ns) for ns in times)])
    return render_rows(lines, width)
