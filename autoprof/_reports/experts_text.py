"""The experts of a mixture of experts as text: tokens, time and time per token of each, and the imbalance."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.units import count, format_count, format_ms, format_ns
from ..summary import ExpertBlock, Summary
from .table import render_rows
from .text import glyphs_for


def render_experts(summary: Summary, *, width: int, encoding: str = "utf-8") -> list[str]:
    """Return the table, no line wider than ``width`` cells; no lines for a model without experts."""
    return list(_lines(summary.experts, width, encoding)) if summary.experts else []


def _lines(blocks: tuple[ExpertBlock, ...], width: int, encoding: str) -> Iterator[str]:
    most = 4
    lines = [["experts, per step", "tokens", "time", "per token", "of mean"]]
    shown = sorted(blocks, key=lambda block: -block.imbalance)[:4]
    for block in shown:
        steps, mean = max(block.steps, 1), sum(block.tokens) / len(block.tokens)
        order = sorted(range(len(block.tokens)), key=lambda at: (-block.tokens[at], at))
        for expert in order[:most]:
            tokens, ns = block.tokens[expert], None if block.ns is None else block.ns[expert]
            lines.append(
                [
                    f"{block.name}, expert {expert}",
                    format_count(tokens / steps),
                    "-" if ns is None else format_ms(ns / steps),
                    "-" if ns is None or not tokens else format_ns(ns / tokens),
                    f"x {tokens / mean:.2f}",
                ]
            )
        rest = order[most:]
        if rest:
            together = format_count(sum(block.tokens[at] for at in rest) / steps)
            lines.append([f"  and {count(len(rest), 'other expert')}, together", together, "", "", ""])
    yield from render_rows(lines, width, encoding=encoding)
    if len(blocks) > len(shown):
        yield f"{glyphs_for(encoding).ellipsis} and {count(len(blocks) - len(shown), 'block')} more even than these"
    if any(block.ns is None for block in shown):
        yield "-: experts that are computed together, or on a device, have no time of their own"
