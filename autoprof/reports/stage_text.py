"""The stages of a run, where there are others than the training: their share of the wall time, times, and rates."""

from __future__ import annotations

from typing import Final

from ..base.summary import TRAINING, Stage, Summary
from ..base.units import NS_PER_S, count, format_ns, format_percent, format_rate, format_span
from .text import render_rows

MOST: Final = 4
"""Stages in the table of the short report, the longest ones."""


def stage_lines(summary: Summary, width: int, most: int | None = None) -> list[str]:
    """Return the table of stages, or of the longest ones; nothing where the program only trains."""
    if not summary.stages:
        return []
    stages = summary.all_stages[:most]
    rates = [_rate(summary, one) for one in stages]
    rows = [["stage", "share", "time", "times", "each", *(["rate"] if any(rates) else [])]]
    for one, rate in zip(stages, rates, strict=True):
        each = format_ns(one.total_ns // max(one.calls, 1))
        cells = [one.kind, _share(summary, one), _time(one.total_ns), str(one.calls), each]
        rows.append([*cells, *([rate] if any(rates) else [])])
    return render_rows(rows, width)


def stage_text(summary: Summary) -> str:
    """Return the stages as a sentence."""
    return "; ".join(
        f"{one.kind} {_share(summary, one)} ({_time(one.total_ns)}, "
        f"{count(one.calls, 'step' if one.name == TRAINING else 'time')})"
        for one in summary.all_stages
    )


def _share(summary: Summary, stage: Stage) -> str:
    return format_percent(stage.total_ns / max(summary.wall_ns, 1))


def _time(ns: int) -> str:
    return format_span(ns) if ns >= NS_PER_S else format_ns(ns)


def _rate(summary: Summary, stage: Stage) -> str:
    if stage.name == TRAINING:
        return "" if summary.throughput is None else format_rate(summary.throughput, summary.throughput_unit)
    return "" if stage.rate is None else format_rate(stage.rate[1], stage.rate[0])
