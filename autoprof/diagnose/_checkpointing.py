"""Memory that activation checkpointing saves, from the growth of the recomputed modules."""

from __future__ import annotations

from ..frame import Phase
from ..summary import Row
from ._evidence import Evidence


def outermost_recomputed(run: Evidence) -> list[Row]:
    """Return the recomputed modules that are inside no other recomputed module; each includes its children.

    A module that checkpoints its children, whose own memory was not measured, is left out.
    """
    rows = [row for row in run.rows.get(Phase.RECOMPUTE, []) if not _is_container(row)]
    names = {row.name for row in rows}
    return [row for row in rows if row.parent not in names or row.parent == row.name]


def _is_container(row: Row) -> bool:
    # The most of a recompute's time outside the modules called in it for which these stand for the whole.
    return row.memory_growth_bytes is None and row.self_ns <= 0.1 * row.total_ns


def saved_bytes(run: Evidence) -> int | None:
    """Return the most memory that checkpointing saves; None where it was not measured.

    It is the memory that the outermost recomputed modules keep while their backward runs. Without checkpointing the
    run needs at most this much more, because the largest of them is part of the peak already.
    """
    outermost = outermost_recomputed(run)
    if "peak_bytes" not in run.summary.memory or not outermost:
        return None
    known = [row.memory_growth_bytes for row in outermost if row.memory_growth_bytes is not None]
    return sum(max(growth, 0) for growth in known) if len(known) == len(outermost) else None
