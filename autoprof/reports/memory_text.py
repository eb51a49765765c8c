"""The memory table of a summary as text: the whole run, then the names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ..base.summary import MemoryRow, Summary
from ..base.units import count, format_bytes, format_percent
from .text import render_rows, wrap

_COLUMNS: Final[tuple[tuple[str, Callable[[MemoryRow], int | None]], ...]] = (
    ("parameters", lambda row: row.parameter_bytes),
    ("gradients", lambda row: row.gradient_bytes),
    ("state", lambda row: row.state_bytes),
    ("forward", lambda row: row.activation_bytes),
    ("peak", lambda row: row.peak_bytes),
)


def readings(memory: Mapping[str, int]) -> Iterator[str]:
    """Phrase each reading at the end of a step: bytes with their unit, counts as numbers."""
    for key, value in memory.items():
        yield f"{label(key)} {format_bytes(value) if key.endswith('_bytes') else value}"


def label(key: str) -> str:
    """Phrase the key of a reading: ``rss_peak_bytes`` is ``rss peak``."""
    return key.removesuffix("_bytes").replace("_", " ")


def render_memory(summary: Summary, *, width: int) -> list[str]:
    """Return the table, no line wider than ``width`` cells; no lines where nothing was counted."""
    if not summary.memory_table:
        return []
    whole, *names = summary.memory_table
    lines = [] if whole.parameter_bytes is None and whole.peak_bytes is None else _whole(whole, width)
    lines += _names(names, whole.peak_bytes, width)
    for column, reason in summary.unmeasured.items():
        lines += wrap("unmeasured", f"{column}: {reason}", width, room=11)
    return lines


def _whole(whole: MemoryRow, width: int) -> list[str]:
    peak = whole.peak_bytes
    against = whole.held_bytes if peak is None else peak
    parts = (
        ("parameters", whole.parameter_bytes),
        ("buffers", whole.buffer_bytes),
        ("gradients", whole.gradient_bytes),
        ("optimizer state", whole.state_bytes),
        ("activations and the rest of the peak", None if peak is None else max(peak - whole.held_bytes, 0)),
        ("together" if peak is None else "peak allocated", against),
    )
    rows = [[word, format_bytes(held), format_percent(held / max(against, 1))] for word, held in parts if held]
    return render_rows([["memory", "bytes", "share" if peak is None else "of the peak"], *rows], width)


def _names(names: list[MemoryRow], peak: int | None, width: int) -> Iterator[str]:
    most = 12
    shown = [row for row in names if row.held_bytes or row.peak_bytes is not None]
    if not shown:
        return
    columns = [(word, of) for word, of in _COLUMNS if any(of(row) is not None for row in shown)]
    rows = [[row.name or "", *(_cell(word, of(row), peak) for word, of in columns)] for row in shown[:most]]
    yield ""
    yield from render_rows([["memory by name", *(word for word, _ in columns)], *rows], width)
    if len(shown) > most:
        yield f"… and {count(len(shown) - most, 'more name')} with less"
    yield "A name includes the modules in it; a shared tensor counts once in each name."
    if any(row.peak_bytes is not None for row in shown):
        yield "forward: the most that a step's forward left allocated. >=: a lower bound:"
        yield "the allocator reached its peak outside of this name."


def _cell(word: str, count: int | None, peak: int | None) -> str:
    if count is None:
        return "-"
    least = word == "peak" and count != peak
    return f"{'>=' if least else ''}{format_bytes(count)}"
