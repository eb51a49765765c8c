"""The table of communication as text: the parts of a step, then each kind of communication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .._core.units import count, format_bytes, format_count, format_ms
from ..frame import Phase
from ..summary import CommRow, Communication, Summary
from .text import glyphs_for, render_rows, wrap

NOT_SEEN: Final = "-"
NO_ENDS: Final = (
    "times and bandwidth are unmeasured on a device: autoprof records no event on a communication stream. Exposed is "
    "the time in which the stream that computes waits"
)


def parts_text(table: Communication) -> str:
    """Phrase the parts of the mean step: compute + exposed + idle = step."""
    steps = max(table.steps, 1)
    parts = (("compute", table.compute_ns), ("exposed", table.exposed_ns), ("idle", table.idle_ns))
    whole = " + ".join(f"{word} {format_ms(ns / steps)}" for word, ns in parts)
    overlap = table.overlapped_ns
    hidden = "" if overlap is None else f"; {format_ms(overlap / steps)} of communication overlap with compute"
    return f"{whole} = step {format_ms(table.step_ns / steps)}{hidden}"


def row_name(row: CommRow) -> str:
    """Return the words for a row: ``all_reduce DDP, bwd, default ×4``."""
    caller = f" {row.caller}" if row.caller else ""
    return f"{row.kind}{caller}, {Phase.add(row.phase).short}, {row.group} ×{row.ranks}"


def format_bandwidth(bytes_per_s: float | None) -> str:
    """Format a bus bandwidth in GB/s, powers of 1000 as in nccl-tests."""
    if bytes_per_s is None:
        return NOT_SEEN
    gigabytes = bytes_per_s / 1e9
    return f"{gigabytes:.{3 if gigabytes < 0.995 else 2 if gigabytes < 9.95 else 1 if gigabytes < 99.5 else 0}f} GB/s"


def render_communication(summary: Summary, *, width: int, encoding: str = "utf-8") -> list[str]:
    """Return the table, no line wider than ``width`` cells; no lines where one process trains alone."""
    table = summary.communication
    if table is None:
        return []
    return list(_lines(table, width, encoding))


def _lines(table: Communication, width: int, encoding: str) -> Iterator[str]:
    most = 12
    yield from wrap("comm", parts_text(table), width, room=11)
    steps, shown = max(table.steps, 1), table.rows[:most]
    heads = ["communication, per step", "calls", "message", "time", "exposed", "bus >="]
    lines = [
        [
            row_name(row),
            format_count(row.calls / steps) if row.calls >= steps else f"{row.calls / steps:.2f}",
            format_bytes(row.bytes / max(row.calls, 1)) if row.bytes else NOT_SEEN,
            format_ms(row.ns / steps) if row.timed else NOT_SEEN,
            format_ms(row.exposed_ns / steps),
            format_bandwidth(row.bus_bytes_per_s),
        ]
        for row in shown
    ]
    if shown:
        yield ""
        yield from render_rows([heads, *lines], width, encoding=encoding)
        if len(table.rows) > most:
            yield f"{glyphs_for(encoding).ellipsis} and {count(len(table.rows) - most, 'more row')} with less"
    if table.unassigned_ns:
        text = f"{format_ms(table.unassigned_ns / steps)} of the exposed time are in no row: no end or begin was seen"
        yield from wrap("", text, width, 0)
    if table.beyond:
        yield from wrap(
            "", f"{count(table.beyond, 'communication')} were not recorded: too many, or too varied", width, 0
        )
    if table.overlapped_ns is None:
        yield from wrap("", NO_ENDS, width, 0)
