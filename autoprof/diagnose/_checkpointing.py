"""Memory that activation checkpointing saves, from the growth of the recomputed modules."""

from __future__ import annotations

from ..frame import Phase
from ..summary import Row
from ._evidence import Evidence


def outermost_recomputed(run: Evidence) -> list[Row]:
    """Return the recomputed modules that are inside no other recomputed module; each includes its children."""
    rows = run.rows.get(Phase.RECOMPUTE, [])
    names = {row.name for row in rows}
    return [row for row in rows if row.parent not in names or row.parent == row.name]


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
