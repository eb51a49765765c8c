"""Memory that activation checkpointing saves, from the growth of the recomputed modules."""

from __future__ import annotations

from ..frame import Phase
from ..summary import Row
from ._evidence import Evidence


def saved_bytes(run: Evidence) -> int | None:
    """Return the most memory that checkpointing saves; None where it was not measured.

    It is the memory that the outermost recomputed modules keep while their backward runs. Without checkpointing the
    run needs at most this much more, because the largest of them is part of the peak already. A module that only
    checkpoints its children, whose own memory was not measured, is left out.
    """
    rows = [row for row in run.rows.get(Phase.RECOMPUTE, []) if not _is_container(row)]
    names = {row.name for row in rows}
    growths = [row.memory_growth_bytes for row in rows if row.parent not in names or row.parent == row.name]
    known = [max(growth, 0) for growth in growths if growth is not None]
    return sum(known) if known and len(known) == len(growths) and "peak_bytes" in run.summary.memory else None


def _is_container(row: Row) -> bool:
    # The most of a recompute's time outside the modules called in it for which these stand for the whole.
    return row.memory_growth_bytes is None and row.self_ns <= 0.1 * row.total_ns
