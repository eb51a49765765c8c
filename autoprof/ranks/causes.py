"""Find the cause of a slow rank, from the row in which it is and from the readings of all ranks in the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from ..base.frame import Phase
from ..base.stats.median import median
from .aligned import align_rows
from .excess import Kind, median_of_others
from .record import BATCH_SCALARS, CLOCK_SCALAR, CPU_WAIT_SCALAR, WAIT_ROWS, RankRecord, SpanKey

Cause = Literal["data", "copies", "batches", "clock", "busy machine", "machine", "module", "optimizer", "user", "host"]
"""The cause of a slow rank: its loader, its copies to the device, larger batches than the others', its device's clock,
other processes on its machine, its machine as a whole, one module, its optimizer, a span of the user's, or its host:
Python, a garbage collection, a pause of the process."""

_BY_PHASE: Final[dict[Phase, Cause]] = {
    Phase.DATA: "data",
    Phase.H2D: "copies",
    Phase.OPTIMIZER: "optimizer",
    Phase.USER: "user",
    Phase.OTHER: "host",
}


def find_cause(
    at: int, key: SpanKey, kind: Kind, late: Sequence[int], records: Sequence[RankRecord], *, share: float
) -> tuple[Cause, float | None]:
    """Return the cause of a rank's excess, and the ratio that shows it.

    ``at`` is the rank's place among the records, ``late`` the steps in which it is slow, ``share`` its excess as a part
    of a step.
    """
    steps = np.asarray(late if kind != "persistent" else range(len(records[0].steps)))
    clock = _ratio(at, CLOCK_SCALAR, records, steps)
    # Equal devices differ by some percent.
    if clock is not None and clock <= 0.9:
        return "clock", clock
    of_phase = _BY_PHASE.get(key[1], "module")
    if of_phase in ("data", "copies"):
        return of_phase, None
    if key[1].traits.scales_with_batch and key[1] is not Phase.OTHER:
        for name in BATCH_SCALARS:
            batch = _ratio(at, name, records, steps)
            if batch is not None and batch >= 1.05:
                return "batches", batch
    waits = _values(CPU_WAIT_SCALAR, records)
    if waits is not None:
        waiting = waits[at] - float(median_of_others(waits)[at])
        if waiting >= max(0.1, share / 2):
            return "busy machine", waiting
    if kind == "one-off":
        return "host", None
    if kind == "persistent" and _is_slow_everywhere(at, records):
        return "machine", None
    return of_phase, None


def _values(
    name: str, records: Sequence[RankRecord], steps: npt.NDArray[np.int64] | slice = slice(None)
) -> list[float] | None:
    """Return the mean of a scalar on each rank; None where a rank has no reading."""
    found = []
    for record in records:
        values = record.scalars.get(name, np.zeros(0))
        values = values[steps] if len(values) else values
        known = values[~np.isnan(values)]
        if not len(known):
            return None
        found.append(float(known.mean()))
    return found


def _ratio(at: int, name: str, records: Sequence[RankRecord], steps: npt.NDArray[np.int64]) -> float | None:
    """Return a rank's scalar over the median of the others'; readings are rarer than steps, so all may be used."""
    values = _values(name, records, steps) or _values(name, records)
    if values is None:
        return None
    others = float(median_of_others(values)[at])
    return values[at] / others if others > 0 else None


def _is_slow_everywhere(at: int, records: Sequence[RankRecord]) -> bool:
    """Return whether nearly all rows of a rank take longer than on the other ranks."""
    rows = [(row.key, median(row.times, axis=1)) for row in align_rows(records) if row.key not in WAIT_ROWS]
    whole = sum(float(median(usual)) for _, usual in rows)
    large = [usual for _, usual in rows if float(median(usual)) >= 0.01 * whole]
    # A row counts as slower from 5 % above the others' time on.
    slower = [usual for usual in large if usual[at] >= 1.05 * median_of_others(usual)[at]]
    # Where the machine is slow, most of the rank's rows are.
    return len(large) >= 4 and len(slower) >= 0.75 * len(large)
