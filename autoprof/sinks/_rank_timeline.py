"""Several ranks on one timeline: their clocks, aligned by the calls of collectives in which they meet.

All ranks leave a collective nearly together, when the last of them has entered it. So the ends of common calls show the
difference of two clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from .._core.units import NS_PER_MS
from .._ranks import CallKey, call_ends
from ..frame import StepFrame
from ._timeline import StepPlacement

MARGIN_STEPS: Final = 64
"""Steps on both sides of the window whose collectives align the clocks as well."""
Ends = dict[CallKey, int]
"""When a rank had left each call, in nanoseconds of its wall clock."""


class ClockShift(NamedTuple):
    """The difference of a rank's clock to that of the lowest rank.

    ``error_ns`` limits its error; 0 for ranks on one clock, None where the difference is unknown.
    """

    offset_ns: int = 0
    error_ns: int | None = 0


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """The clocks of some ranks, and the start of their common timeline."""

    shifts: Mapping[int, ClockShift] = field(default_factory=dict)
    origin_unix_ns: int | None = None

    @property
    def summary(self) -> str | None:
        """The error of the clocks in words; None where all ranks have one clock."""
        errors = [shift.error_ns for shift in self.shifts.values() if shift.error_ns]
        parts = [f"clocks aligned to ± {max(errors) / NS_PER_MS:.3f} ms by collectives"] if errors else []
        unknown = [str(rank) for rank, shift in self.shifts.items() if shift.error_ns is None]
        if unknown:
            parts.append(f"too few collectives in common to align the clock of rank {', '.join(unknown)}")
        return "; ".join(parts) or None

    def place(self, rank: int, frame: StepFrame) -> StepFrame:
        """Return a frame of this rank with its start on the common clock."""
        offset_ns = self.shifts.get(rank, ClockShift()).offset_ns
        return StepFrame.of(**{**vars(frame), "start_unix_ns": frame.start_unix_ns - offset_ns}) if offset_ns else frame


def align_ranks(
    frames: Mapping[int, Iterable[StepFrame]], clocks: Mapping[int, str | None], first: int
) -> RankTimeline:
    """Align the ranks by all their steps; the timeline begins with step ``first``."""
    ends: dict[int, Ends] = {}
    starts: dict[int, int] = {}
    for rank, held in frames.items():
        placement, ends[rank] = StepPlacement(), {}
        for frame in held:
            _, device_ns = placement.place(frame)
            on_device = frame.device_start_ns is not None and frame.device_ns is not None
            begin_ns = device_ns + (placement.origin_unix_ns or 0) if on_device else frame.start_unix_ns
            ends[rank] |= call_ends(frame, begin_ns)
            if frame.step >= first:
                starts.setdefault(rank, frame.start_unix_ns)
    shifts = align_clocks(ends, clocks)
    begins = [start_ns - shifts[rank].offset_ns for rank, start_ns in starts.items()]
    return RankTimeline(shifts, min(begins, default=None))


def align_clocks(ends: Mapping[int, Ends], clocks: Mapping[int, str | None]) -> dict[int, ClockShift]:
    """Return the shift of each rank's clock to that of the lowest rank.

    Ranks with equal ``clocks`` (the same host) have one clock; None is a clock of its own.
    """
    by_clock: dict[str, ClockShift] = {}
    shifts: dict[int, ClockShift] = {}
    for rank in sorted(ends):
        clock = clocks.get(rank) or f"rank {rank}"
        if clock not in by_clock:
            by_clock[clock] = _align(ends[rank], ends[min(ends)]) if shifts else ClockShift()
        shifts[rank] = by_clock[clock]
    return shifts


def _align(ends: Ends, reference: Ends) -> ClockShift:
    """Return the shift of a clock by the calls that it has in common with the reference; unknown with few of them."""
    differences = np.array([ends[key] - reference[key] for key in ends.keys() & reference.keys()], dtype=np.int64)
    if len(differences) < 16:
        return ClockShift(error_ns=None)
    offset_ns = int(np.sort(differences)[len(differences) // 2])
    distances = np.sort(np.abs(differences - offset_ns))
    # The error is three times the distance that four fifths of the calls are within: a few ranks leave late.
    return ClockShift(offset_ns, 3 * int(distances[(len(distances) - 1) * 4 // 5]) + 1)
