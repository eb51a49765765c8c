"""The comparison of many ranks from their records, as text and as rows for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ..base.names import visible
from ..base.units import NS_PER_MS, count, format_ms, format_percent
from ..ranks import FolderRecords, LeftOut, RankComparison, median_of_others, name_ranks, phrase_slow
from .text import crop, render_rows, safe, wrap

MIN_WIDTH: Final = 80


def render_ranks(
    found: FolderRecords, comparison: RankComparison, *, width: int = MIN_WIDTH, top: int = 10
) -> list[str]:
    """Return the report: the verdict, the ``top`` ranks with the largest excess (0: all), and the ranks left out."""
    width = max(width, MIN_WIDTH)
    lines = wrap("run", found.folder, width)
    lines += wrap("ranks", _counted(found, comparison), width)
    lines += wrap("verdict", _verdict(comparison), width)
    if rows := _rows(comparison):
        lines += ["", *_table(rows, width, top or len(rows))]
    if found.left_out:
        lines += ["", *_left_out(found.left_out, width)]
    return [crop(safe(line), width).rstrip() for line in lines]


def _counted(found: FolderRecords, comparison: RankComparison) -> str:
    used = len(found.records)
    ranks = f"{used:,} of {found.world_size:,}" if used != found.world_size else f"{used:,}"
    return ranks if comparison.missing is not None else f"{ranks}, compared in {comparison.steps:,} steps"


def _verdict(comparison: RankComparison) -> str:
    if comparison.missing is not None:
        return f"inconclusive; missing: {comparison.missing}"
    if comparison.slow:
        return visible(phrase_slow(replace(comparison, absent=())))  # the list below has the absent ranks
    if comparison.unclear is not None:
        return f"inconclusive; {comparison.unclear}"
    excess = comparison.excess_ns
    share = format_percent(excess.middle / comparison.step_ns) if comparison.step_ns else "0 %"
    return (
        f"no rank is slow; rank {comparison.rank} has the longest own work: {format_ms(excess.middle)} a step ({share} "
        f"of the step) more than the others (95 % interval {format_ms(excess.low)} to {format_ms(excess.high)})"
    )


class _Row(NamedTuple):
    """One rank: its median own work, and its excess over the others'."""

    rank: int
    own_ns: int
    excess_ns: int


def _rows(comparison: RankComparison) -> list[_Row]:
    """Return a row for each compared rank, by rank."""
    if comparison.missing is not None:
        return []
    own_ns = np.array(comparison.own_ns)
    excess_ns = own_ns - median_of_others(own_ns)
    found = zip(comparison.compared, own_ns, excess_ns, strict=True)
    return [_Row(rank, int(own), round(float(excess))) for rank, own, excess in found]


def _table(rows: Sequence[_Row], width: int, top: int) -> Iterator[str]:
    shown = sorted(rows, key=lambda row: (-row.excess_ns, row.rank))[:top]
    lines = [[f"rank {row.rank}", f"{row.own_ns / NS_PER_MS:.2f}", _signed(row.excess_ns)] for row in shown]
    yield from render_rows([["rank", "own ms", "excess ms"], *lines], width)
    if rest := sorted(row.excess_ns for row in rows if row not in shown):
        yield f"{count(len(rest), 'further rank')}: {_signed(rest[0])} to {_signed(rest[-1])} ms (--top 0: all)"


def _signed(ns: float) -> str:
    return f"{ns / NS_PER_MS:+.2f}"


def _left_out(entries: Sequence[LeftOut], width: int) -> Iterator[str]:
    ranks: dict[str, list[int]] = {}
    for entry in entries:
        ranks.setdefault(entry.why, []).append(entry.rank)
    yield "left out (--json has the whole list)"
    for why, named in ranks.items():
        yield from wrap("", f"{name_ranks(named)}: {visible(why)}", width, 2)


def ranks_to_dict(found: FolderRecords, comparison: RankComparison) -> dict[str, Any]:
    """Return the report as JSON has it. Times are nanoseconds."""
    return {
        "folder": found.folder,
        "world_size": found.world_size,
        "compared_ranks": sorted(found.records),
        "comparison": asdict(comparison),
        "ranks": [row._asdict() for row in _rows(comparison)],
        "left_out": [entry._asdict() for entry in found.left_out],
    }
