"""Rule ``comm-exposed``: the step waits for communication that no computation overlaps.

Finds, above a bound:

- communication that nothing overlaps, without the wait for other ranks; the reductions of one update are counted;
  silent if at least half of it is the wait for the rank of ``straggler``: 10 %.
"""

from __future__ import annotations

from typing import Final

from ...base.frame import Phase
from ...base.summary import Finding, Row
from ...base.units import format_bytes, format_percent
from ...ranks import RankComparison
from .. import Evidence, ExceededBound, Experiment, Rule, abstain, dominant_name, threshold_rows
from .._bounds import MIN_SHARE

REDUCER: Final = "Comm/DDP"
"""The name of the wait for DDP's reducer, of which each backward that reduces gradients has one."""
ACCUMULATE: Final = (
    "put the forward and the backward of all micro-batches but the last one under model.no_sync(): DDP reads it in the "
    "forward"
)
OVERLAP: Final = (
    "overlap communication with backward (DDP buckets, FSDP prefetch), accumulate gradients under no_sync(), or send "
    "less (bfloat16 gradients)"
)


def judge(run: Evidence) -> Finding | None:
    """Judge the exposed communication without the wait for other ranks, which only their work makes shorter."""
    rows = run.rows.get(Phase.COMM)
    if rows is None:
        return abstain("comm-exposed", "comm spans", "nothing to do when one process trains alone")
    found = threshold_rows("comm-exposed", run, rows)
    if found is None:
        return None
    ranks = run.facts.ranks
    if run.facts.world_size > 1 and (ranks is None or ranks.missing is not None):
        missing = "the comparison of the ranks: without it, communication may be the wait for a slower rank"
        return abstain("comm-exposed", missing, "autoprof show RUN compares them when all are in one folder")
    part = _own_part(ranks, run.facts.rank)
    if not isinstance(found, ExceededBound):
        return found if part == 1.0 else None
    waiting = ranks is not None and bool(ranks.slow) and ranks.slow[0].rank != run.facts.rank
    # Where half of the communication or more is the wait for a slow rank, that rank is the finding.
    if found.share.low * part < MIN_SHARE or (waiting and part <= 0.5):
        return None
    waits = "" if part == 1.0 else f"; of it, {format_percent(1 - part)} is the wait for other ranks"
    alike = "; no rank's own work is longer" if ranks is not None and not ranks.slow and not ranks.absent else ""
    reductions = max((row.calls / max(row.steps, 1) for row in rows if row.name.startswith(REDUCER)), default=0.0)
    several = round(reductions) >= 2 and (run.summary.micro_steps or 1) >= 2
    times = f"; gradients are reduced {round(reductions)} times for one update" if several else ""
    return found.finding(
        f"exposed communication takes {found}; nothing is computed meanwhile{waits}{alike}{times}"
        f"{_describe_sizes(rows)}",
        ACCUMULATE if several else OVERLAP,
        name=dominant_name(rows),
        gain_ns=found.mean_ns * part,
        evidence={"waiting": round(1 - part, 4), "bytes": {row.name: row.communicated_bytes for row in _sized(rows)}},
    )


def _sized(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.communicated_bytes]


def _describe_sizes(rows: list[Row]) -> str:
    """Return the clause on the bytes of a step. A call that returns at once has the bytes, and its wait the time."""
    sized = _sized(rows)
    largest = max(sized, key=lambda row: row.communicated_bytes or 0, default=None)
    if largest is None:
        return ""
    most = f", most of it in {largest.name}" if len(sized) > 1 else f" in {largest.name}"
    return f"; a step communicates {format_bytes(sum(row.communicated_bytes or 0 for row in sized))}{most}"


def _own_part(ranks: RankComparison | None, rank: int) -> float:
    """Return the part of a rank's communication that is no wait for another rank.

    The rank that comes last to a collective waits for none; its time is that of the communication itself.
    """
    if ranks is None or rank not in ranks.compared or ranks.pure_comm_ns is None or not ranks.comm_ns:
        return 1.0
    return min(ranks.pure_comm_ns / max(ranks.comm_ns[ranks.compared.index(rank)], 1), 1.0)


RULE = Rule("comm-exposed", judge, order=110, experiment=Experiment("communication.bucketed", value=True))
