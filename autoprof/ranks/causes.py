"""Find the cause of a slow rank, from the row in which it is and from the readings of all ranks in the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

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


class Found(NamedTuple):
    """The cause of a slow rank, and the ratio that shows it: of its clock, of its batches, or its wait."""

    cause: Cause
    ratio: float | None = None
    amount: str = ""
    """The scalar of the batches that were compared: their amount is larger than the others', or the same."""
    explained: float | None = None
    """The part of the excess that the larger batches cost, if the time of each module grows with them."""


def find_cause(
    at: int, key: SpanKey, kind: Kind, late: Sequence[int], records: Sequence[RankRecord], *, excess_ns: float
) -> Found:
    """Return the cause of a rank's excess.

    ``at`` is the rank's place among the records, ``late`` the steps in which it is slow, ``excess_ns`` its excess in a
    mean step.
    """
    count = len(records[0].steps)
    steps = np.asarray(late if kind != "persistent" else range(count))
    clock = _ratio(at, CLOCK_SCALAR, records, steps)
    # Equal devices differ by some percent.
    if clock is not None and clock <= 0.9:
        return Found("clock", clock)
    of_phase = _BY_PHASE.get(key[1], "module")
    if of_phase in ("data", "copies"):
        return Found(of_phase)
    same = ""
    if key[1].traits.scales_with_batch and key[1] is not Phase.OTHER:
        amounts = {name: _ratio(at, name, records, steps) for name in BATCH_SCALARS}
        known = {name: ratio for name, ratio in amounts.items() if ratio is not None}
        for name, ratio in known.items():
            explained = (ratio - 1) * _scaled_ns(at, records, steps) * len(steps) / count / max(excess_ns, 1.0)
            # Half of the excess: a little more data is no reason for a rank that takes much longer.
            if ratio >= 1.05 and explained >= 0.5:
                return Found("batches", ratio, name, min(explained, 1.0))
        same = next(iter(known), "") if all(abs(ratio - 1) < 0.05 for ratio in known.values()) else ""
    waits = _values(CPU_WAIT_SCALAR, records)
    if waits is not None:
        waiting = waits[at] - float(median_of_others(waits)[at])
        step_ns = float(median(np.stack([record.step_ns for record in records])))
        if waiting >= max(0.1, excess_ns / step_ns / 2):
            return Found("busy machine", waiting)
    if kind == "one-off":
        return Found("host")
    if kind == "persistent" and _is_slow_everywhere(at, records):
        return Found("machine", amount=same)
    return Found(of_phase, amount=same)


def _scaled_ns(at: int, records: Sequence[RankRecord], steps: npt.NDArray[np.int64]) -> float:
    """Return the time of the others' rows that grows with the batch, the median of them, in a mean one of the steps."""
    times = np.zeros(len(records))
    for place, record in enumerate(records):
        for key, ns in record.rows.items():
            if key not in WAIT_ROWS and key[1].traits.scales_with_batch:
                times[place] += float(ns[steps].mean())
    return float(median_of_others(times)[at])


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
