"""The plain line, for outputs without a terminal: the log of a job, a notebook, a pipe."""

from __future__ import annotations

from typing import Final

from .._core.units import format_ms, format_rate, format_round_percent, format_span
from ..summary import Summary
from .card import verdict_line
from .measurements import brief_metrics, brief_work
from .panel import panel_tree
from .text import cells, elide, safe

LINE: Final = 100
"""Cells of the line at most; the files of the run have the rest."""


def render_plain(summary: Summary, *, step: int, top: int = 3, encoding: str = "utf-8") -> str:
    """Return the run so far in one line of at most 100 cells: means per recorded step, percentages of the step.

    It has the time of a step, the throughput and the time left, then as much as fits: the longest phases and names,
    rates, utilization and overhead.
    """
    name_cells = 30
    if not summary.steps:
        return f"autoprof | step {step} | warming up"
    whole = max(summary.total_step_ns, 1)
    limit = summary.clock_limit_ns * summary.steps / whole
    start = [format_ms(summary.step_mean_ns)]
    if summary.throughput is not None:
        start.append(format_rate(summary.throughput, summary.throughput_unit))
    if summary.progress is not None and summary.progress.remaining_ns:
        start.append(f"{format_span(summary.progress.remaining_ns)} left")
    longest = sorted(summary.phases, key=lambda phase: -summary.phases[phase])[:3]
    shares = [
        f"{phase.short} {format_round_percent(ns / whole, limit)}%"
        for phase, ns in summary.phases.items()
        if ns and phase in longest
    ]
    rows = panel_tree(summary, top, name_cells).rows
    depths = [*(row.depth for row in rows[1:]), 0][: len(rows)]
    leaves = [row for row, below in zip(rows, depths, strict=True) if below <= row.depth]
    names = []
    for row in sorted(leaves, key=lambda row: -row.total_ns):
        share = format_round_percent(row.share, row.limit_ns / max(summary.step_mean_ns, 1))
        names += [f"{elide(safe(row.path, encoding), name_cells)} {share}%"] if row.path else []
    line = " | ".join([f"autoprof | step {step}", *start])
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
    return safe(line, encoding)


def render_plain_verdict(summary: Summary, *, encoding: str = "utf-8") -> str | None:
    """Return the verdict in one line of at most 100 cells, with its gain where there is room; None before one."""
    for gain in (True, False):
        verdict = verdict_line(summary, gain=gain)
        if verdict is None:
            return None
        text = safe(f"autoprof | verdict: {verdict}", encoding)
        if cells(text) <= LINE:
            return text
    return elide(text, LINE)
