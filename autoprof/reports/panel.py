"""The run so far: the live panel, and for outputs without a terminal a line of at most 100 cells."""

from __future__ import annotations

import re
from typing import Final

from ..base.frame import Phase
from ..base.summary import Summary, format_counts
from ..base.units import count, format_ms, format_percent, format_rate, format_round_percent, format_span
from .card import verdict_line
from .hot_tree import HotTree, hot_tree, separate_tree
from .measurements import brief_metrics, brief_work
from .memory_text import readings
from .text import cells, crop, elide, safe
from .tree_text import name_cells, render_tree

LINE: Final = 100
"""Cells of the line at most; the files of the run have the rest."""


def panel_tree(summary: Summary, top: int, room: int) -> HotTree:
    """Return the ``top`` longest rows; logged durations are shown only where nothing else was measured."""
    tree = hot_tree(summary, top, room)
    if any(row.path for row in tree.rows):
        return tree
    separate = separate_tree(summary, top, room)
    return separate if separate.rows else tree


def render_panel(summary: Summary, *, width: int, top: int, color: bool, step: int | None = None) -> list[str]:
    """Return the live panel, no line wider than ``width`` cells.

    ``step`` is the last step in the figures. Times are means per recorded step, percentages are of the step.
    """
    # Cells from which a panel has bars and the columns forward, recompute and backward.
    wide = 70
    inner = width - 2
    dot = " · "
    speed = [f"{format_ms(summary.step_mean_ns)}/step", *_pace(summary)] if summary.steps else ["warming up"]
    title = ["autoprof", *([] if step is None else [f"step {step}"]), *speed]
    while len(title) > 2 and cells(dot.join(title)) > width - 4:
        title.pop()
    texts, total = [f"{count(summary.warmup_steps, 'warm-up step')} so far, excluded from all statistics"], ""
    if summary.steps:
        bar_cells = 0 if width < wide else 6 if width < 100 else 12
        tree = panel_tree(summary, top, name_cells(summary, inner - bar_cells))
        texts = render_tree(tree, summary, inner, split=width >= wide, bar_cells=bar_cells)
        texts += [_phases(summary, inner), *_notes(summary, dot)]
        if (verdict := verdict_line(summary)) is not None:
            texts.append(f"verdict: {verdict}")
        total = dot.join(
            [
                f"Total {format_ms(summary.step_mean_ns)}",
                f"p50 {format_ms(summary.step_p50_ns)}",
                f"p95 {format_ms(summary.step_p95_ns)}",
                f"autoprof itself {format_percent(summary.overhead)}",
            ]
        )
    lines = [f"│ {crop(safe(text), inner).rstrip()}"[: max(width, 0)] for text in texts]
    if color:
        lines = [re.sub("█+", lambda bar: _paint(bar[0], "cyan", color), line) for line in lines]
        lines = [_paint(line[:1], "dim", color) + line[1:] for line in lines]
    return [_edge("┌", dot.join(title), width, color), *lines, _edge("└", total, width, color)]


def _paint(text: str, style: str, color: bool) -> str:
    styles = {"bold": "\x1b[1m", "dim": "\x1b[2m", "cyan": "\x1b[36m", "reset": "\x1b[0m"}
    return f"{styles[style]}{text}{styles['reset']}" if color and text else text


def _edge(corner: str, title: str, width: int, color: bool) -> str:
    """Return the first or the last line of the frame, with a title in it."""
    shown = crop(safe(f" {title} "), width - 2) if title else ""
    left = f"{corner}─"[: max(width, 1)]
    right = "─" * (width - 2 - cells(shown))
    return _paint(left, "dim", color) + _paint(shown, "bold", color) + _paint(right, "dim", color)


def _phases(summary: Summary, width: int) -> str:
    """Phrase the phases that took time, and ``other`` always, in words as long as the width allows."""
    shares = [(phase, ns / summary.total_step_ns) for phase, ns in summary.phases.items() if ns or phase is Phase.OTHER]
    limit = summary.clock_limit_ns * summary.steps / summary.total_step_ns
    text = "  ".join([f"{phase.value} {format_percent(share, limit)}" for phase, share in shares])
    if len(text) <= width:
        return text
    return " ".join([f"{phase.short} {format_round_percent(share, limit)}%" for phase, share in shares])


def _pace(summary: Summary) -> list[str]:
    """Phrase the throughput and the time to finish, as far as they are known."""
    rate, progress = summary.throughput, summary.progress
    pace = [] if rate is None else [format_rate(rate, summary.throughput_unit)]
    return pace + ([f"{format_span(progress.remaining_ns)} left"] if progress and progress.remaining_ns else [])


def _notes(summary: Summary, dot: str) -> list[str]:
    notes = []
    for word, parts in (
        ("work: ", brief_work(summary.work)),
        ("use: ", brief_metrics(summary)),
        ("memory: ", [*readings(summary.memory)]),
        ("dropped ", [format_counts(summary.dropped)] if summary.dropped else []),
        ("skipped ", [format_counts(summary.skipped)] if summary.skipped else []),
    ):
        if parts:
            notes.append(word + dot.join(parts))
    return [*notes, *summary.notes]


def render_plain(summary: Summary, *, step: int, top: int = 3) -> str:
    """Return the run so far in one line of at most 100 cells: means per recorded step, percentages of the step.

    It has the time of a step, the throughput and the time left, then as much as fits: the longest phases and names,
    rates, utilization and overhead.
    """
    most_cells = 30
    if not summary.steps:
        return f"autoprof | step {step} | warming up"
    whole = max(summary.total_step_ns, 1)
    limit = summary.clock_limit_ns * summary.steps / whole
    longest = sorted(summary.phases, key=lambda phase: -summary.phases[phase])[:3]
    shares = [
        f"{phase.short} {format_round_percent(ns / whole, limit)}%"
        for phase, ns in summary.phases.items()
        if ns and phase in longest
    ]
    rows = panel_tree(summary, top, most_cells).rows
    depths = [*(row.depth for row in rows[1:]), 0][: len(rows)]
    leaves = [row for row, below in zip(rows, depths, strict=True) if below <= row.depth]
    names = []
    for row in sorted(leaves, key=lambda row: -row.total_ns):
        share = format_round_percent(row.share, row.limit_ns / max(summary.step_mean_ns, 1))
        names += [f"{elide(safe(row.path), most_cells)} {share}%"] if row.path else []
    line = " | ".join([f"autoprof | step {step}", format_ms(summary.step_mean_ns), *_pace(summary)])
    for before, between, pieces in (
        (" | ", "", [" ".join(shares)] if shares else []),
        (" | top ", ", ", names),
        (" | ", " ", [*brief_work(summary.work), *brief_metrics(summary)]),
        (" | ", "", [f"overhead {100 * summary.overhead:.2f} %"]),
    ):
        for at, piece in enumerate(pieces):
            longer = f"{line}{between if at else before}{piece}"
            if cells(longer) > LINE:
                break
            line = longer
    return safe(line)


def render_plain_verdict(summary: Summary) -> str:
    """Return the verdict in one line of at most 100 cells."""
    return elide(safe(f"autoprof | verdict: {verdict_line(summary)}"), LINE)
