"""Several ranks on one timeline: their clocks, aligned by the calls of collectives in which they meet.

All ranks leave a collective nearly together, when the last of them has entered it. So the ends of common calls show the
difference of two clocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .._core.units import NS_PER_MS, NS_PER_S
from .._ranks import CallKey, CollectiveCall, StepCollectives
from ..frame import StepFrame
from ._timeline import StepPlacement

MARGIN_STEPS: Final = 64
"""Steps on both sides of the window whose collectives align the clocks as well."""
Calls = Mapping[CallKey, CollectiveCall]


class ClockShift(NamedTuple):
    """The difference of a rank's clock to that of the lowest rank, from ``calls`` in common.

    ``error_ns`` limits its error; 0 for ranks on one clock, None where the difference is unknown.
    """

    offset_ns: int = 0
    error_ns: int | None = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """The clocks of some ranks, and the start of their common timeline."""

    shifts: Mapping[int, ClockShift] = field(default_factory=dict)
    origin_unix_ns: int | None = None

    def describe(self, rank: int) -> str | None:
        """Return in words how a rank's clock was corrected; None where it has the clock of the first rank."""
        shift = self.shifts.get(rank, ClockShift())
        if shift.error_ns is None:
            return f"clock not aligned: no collective in common with rank {min(self.shifts)}"
        if not shift.calls:
            return None
        return (
            f"clock {shift.offset_ns / NS_PER_S:+.6f} s ± {shift.error_ns / NS_PER_MS:.3f} ms against rank "
            f"{min(self.shifts)} ({shift.calls} collectives)"
        )

    @property
    def summary(self) -> str | None:
        """The error of the clocks in words; None where all ranks have one clock."""
        errors = [shift.error_ns for shift in self.shifts.values() if shift.calls and shift.error_ns is not None]
        parts = [f"clocks aligned to ± {max(errors) / NS_PER_MS:.3f} ms by collectives"] if errors else []
        unknown = [str(rank) for rank, shift in self.shifts.items() if shift.error_ns is None]
        if unknown:
            parts.append(f"not aligned, because it has no collective in common: the clock of rank {', '.join(unknown)}")
        return "; ".join(parts) or None

    def place(self, rank: int, frame: StepFrame) -> StepFrame:
        """Return a frame of this rank with its start on the common clock."""
        offset_ns = self.shifts.get(rank, ClockShift()).offset_ns
        return StepFrame.of(**{**vars(frame), "start_unix_ns": frame.start_unix_ns - offset_ns}) if offset_ns else frame


def align_ranks(
    steps: Mapping[int, Sequence[StepCollectives]], clocks: Mapping[int, Hashable | None], first: int
) -> RankTimeline:
    """Align the ranks by all their steps; the timeline begins with step ``first``."""
    shifts = align_clocks({rank: _on_own_clock(held) for rank, held in steps.items()}, clocks)
    starts = (
        one.start_unix_ns - shifts[rank].offset_ns for rank, held in steps.items() for one in held if one.step >= first
    )
    return RankTimeline(shifts, min(starts, default=None))


def align_clocks(calls: Mapping[int, Calls], clocks: Mapping[int, Hashable | None]) -> dict[int, ClockShift]:
    """Return the shift of each rank's clock to that of the lowest rank.

    Ranks with equal ``clocks`` (the same host) have one clock; None is a clock of its own.
    """
    members: dict[Hashable, list[int]] = {}
    for rank in sorted(calls):
        clock = clocks.get(rank)
        members.setdefault(("rank", rank) if clock is None else ("clock", clock), []).append(rank)
    merged = [(ranks, _merge([calls[rank] for rank in ranks])) for ranks in members.values()]
    shifts: dict[int, ClockShift] = {}
    for ranks, own in merged:
        shift = _align(own, merged[0][1]) if shifts else ClockShift()
        shifts |= dict.fromkeys(ranks, shift)
    return shifts


def _merge(calls: Sequence[Calls]) -> Calls:
    """Return the calls of one clock: entered by the last of its ranks, left by the first."""
    merged = dict(calls[0])
    for others in calls[1:]:
        for key, call in others.items():
            known = merged.get(key, call)
            start_ns, end_ns = max(known.start_ns, call.start_ns), min(known.end_ns, call.end_ns)
            merged[key] = call._replace(start_ns=start_ns, end_ns=end_ns)
    return merged


def _align(calls: Calls, by: Calls) -> ClockShift:
    """Return the shift of a clock by the calls that it has in common with the reference."""
    common = calls.keys() & by.keys()
    if not common:
        return ClockShift(error_ns=None)
    differences = {key: calls[key].end_ns - by[key].end_ns for key in common}
    if len(common) < 16:  # the shortest call limits the error: every rank enters it before any rank leaves it
        lengths = {key: max(one[key].end_ns - one[key].start_ns for one in (calls, by)) for key in common}
        shortest = min(common, key=lambda key: (lengths[key], key))
        return ClockShift(differences[shortest], lengths[shortest], len(common))
    offset_ns = sorted(differences.values())[len(common) // 2]
    distances = sorted(abs(one - offset_ns) for one in differences.values())
    # The error is three times the distance that four fifths of the calls are within: a few ranks leave late.
    return ClockShift(offset_ns, 3 * distances[(len(common) - 1) * 4 // 5] + 1, len(common))


def _on_own_clock(steps: Sequence[StepCollectives]) -> dict[CallKey, CollectiveCall]:
    """Return the calls of one rank in nanoseconds of its own wall clock."""
    placement, found = StepPlacement(), {}
    for one in steps:
        _, device_ns = placement.place(one)
        begin_ns = device_ns + (placement.origin_unix_ns or 0) if one.on_device else one.start_unix_ns
        found.update({call.key: call.at(begin_ns) for call in one.calls})
    return found
